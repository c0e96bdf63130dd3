create or replace view webhook_records with (security_invoker = true) as
select id,
       company_id,
       url,
       description,
       types,
       enabled,
       include_record,
       instant(created_at) as created_at,
       instant(updated_at) as updated_at,
       ordered,
       (select count(*)
          from webhook_deliveries d
         where d.company_id = e.company_id and d.endpoint_id = e.id
           and d.status = 'Pending') as pending,
       (select count(*)
          from webhook_deliveries d
         where d.company_id = e.company_id and d.endpoint_id = e.id
           and d.delivered_at > clock_timestamp() - interval '1 minute') as delivered_last_minute
  from webhook_endpoints e;
grant select on webhook_records to einvoice_service, einvoice_reader;
comment on view webhook_records is 'Webhook endpoints as the API returns them, without secrets.';
comment on column webhook_records.id is 'Identifies the endpoint.';
comment on column webhook_records.company_id is 'Company of the endpoint.';
comment on column webhook_records.url is 'URL that events are sent to.';
comment on column webhook_records.description is 'Description for people. Empty: none.';
comment on column webhook_records.types is 'Types of events to deliver. Empty: all.';
comment on column webhook_records.enabled is 'Whether events are delivered.';
comment on column webhook_records.include_record is
  'Whether deliveries contain the record that the event is about.';
comment on column webhook_records.ordered is
  'Whether one event is delivered at a time, in the order of the feed.';
comment on column webhook_records.pending is 'Number of events that wait for their delivery.';
comment on column webhook_records.delivered_last_minute is
  'Number of events that were delivered in the last minute.';
comment on column webhook_records.created_at is 'When it was created, as text.';
comment on column webhook_records.updated_at is 'When the client last changed it, as text.';
