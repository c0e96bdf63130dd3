create or replace view webhook_delivery_records with (security_invoker = true) as
select d.id,
       d.company_id,
       d.endpoint_id as webhook_id,
       d.event_id,
       e.type as event_type,
       d.status,
       d.attempts,
       d.response_status,
       d.error,
       instant(d.last_attempt_at) as last_attempt_at,
       instant(d.next_attempt_at) as next_attempt_at,
       instant(d.delivered_at) as delivered_at,
       instant(d.created_at) as created_at
  from webhook_deliveries d
  join events e on e.company_id = d.company_id and e.id = d.event_id;
grant select on webhook_delivery_records to einvoice_service, einvoice_reader;
comment on view webhook_delivery_records is 'Webhook deliveries as the API returns them.';
comment on column webhook_delivery_records.id is 'Identifies the delivery.';
comment on column webhook_delivery_records.company_id is 'Company of the endpoint.';
comment on column webhook_delivery_records.webhook_id is 'Endpoint that is delivered to.';
comment on column webhook_delivery_records.event_id is 'Event that is delivered.';
comment on column webhook_delivery_records.event_type is 'Type of the event.';
comment on column webhook_delivery_records.status is 'Pending, Delivered or Failed.';
comment on column webhook_delivery_records.attempts is 'Attempts in total.';
comment on column webhook_delivery_records.response_status is
  'HTTP status of the latest response. Null: no response.';
comment on column webhook_delivery_records.error is 'Error of the latest attempt. Null: none.';
comment on column webhook_delivery_records.last_attempt_at is
  'When the latest attempt began, as text. Null: none.';
comment on column webhook_delivery_records.next_attempt_at is
  'When the next attempt is due, as text. Null unless Pending.';
comment on column webhook_delivery_records.delivered_at is
  'When it was delivered, as text. Null: not yet.';
comment on column webhook_delivery_records.created_at is 'When it was created, as text.';
