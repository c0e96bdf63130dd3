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
call publish('webhook_records', '
  Webhook endpoints as the API returns them, without secrets.

  pending: Number of events that wait for their delivery.
  delivered_last_minute: Number of events that were delivered in the last minute.
', 'webhook_endpoints');
