-- What was sent, seemed absent and is sent again: a refusal of it does not say that the first one is not there.
alter table submissions add column doubted boolean not null default false;
grant update (doubted) on submissions to einvoice_service;
