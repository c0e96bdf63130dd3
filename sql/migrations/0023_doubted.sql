-- What was sent, seemed absent and is sent again: a refusal of it does not say that the first one is not there.
alter table submissions add column possibly_received boolean not null default false;
grant update (possibly_received) on submissions to einvoice_service;
