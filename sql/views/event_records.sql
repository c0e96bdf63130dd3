create or replace view event_records with (security_invoker = true) as
select id,
       company_id,
       transaction_id,
       type,
       data,
       instant(created_at) as created_at
  from events
 where transaction_id < pg_snapshot_xmin(pg_current_snapshot());
call publish('event_records', '
  Events as the API returns them, once no earlier transaction can add one before them.
', 'events');
