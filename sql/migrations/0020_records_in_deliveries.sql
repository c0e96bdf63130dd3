-- An endpoint can ask for the record of each event in its deliveries.

alter table webhook_endpoints add column include_record boolean not null default false;
comment on column webhook_endpoints.include_record is
  'Whether deliveries contain the record that the event is about.';
