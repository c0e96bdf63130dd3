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
call publish('webhook_delivery_records', '
  Webhook deliveries as the API returns them.

  webhook_id: Endpoint that is delivered to.
  event_type: Type of the event.
', 'webhook_deliveries');
