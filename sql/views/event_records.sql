create or replace view event_records with (security_invoker = true) as
select id,
       company_id,
       transaction_id,
       type,
       data,
       instant(created_at) as created_at
  from events
 where transaction_id < pg_snapshot_xmin(pg_current_snapshot());
grant select on event_records to einvoice_service, einvoice_reader;
comment on view event_records is
  'Events as the API returns them, once no earlier transaction can add one before them.';
comment on column event_records.id is 'Identifies the event.';
comment on column event_records.company_id is 'Company of the event.';
comment on column event_records.transaction_id is
  'Transaction that wrote it, which decides the order of the feed.';
comment on column event_records.type is 'Type of the event, such as invoice.valid.';
comment on column event_records.data is 'Data of the event as the API shows it.';
comment on column event_records.created_at is 'When the event was written, as text.';
