-- Each endpoint advances by at most `most` events. Transactions that write events do nothing for
-- webhooks: their events are found by the next run.
-- Planned for each call, because the tables grow from nothing while a process keeps its plans.
create or replace function fan_out_webhooks(endpoints int, most int) returns bigint
  volatile set plan_cache_mode = force_custom_plan language sql
  begin atomic
    with behind as (
      select e.company_id, e.id, e.types, e.cursor_transaction, e.cursor_event
        from webhook_endpoints e
       where e.enabled
         and exists (select
                       from events v
                      where v.company_id = e.company_id
                        and (v.transaction_id, v.id) > (e.cursor_transaction, e.cursor_event)
                        and v.transaction_id < pg_snapshot_xmin(pg_current_snapshot()))
       order by e.cursor_transaction
       limit endpoints
         for update skip locked
    ), batch as materialized (
      select b.company_id, b.id as endpoint_id, b.types, v.transaction_id, v.id as event_id, v.type
        from behind b
       cross join lateral (select n.transaction_id, n.id, n.type
                             from events n
                            where n.company_id = b.company_id
                              and (n.transaction_id, n.id) > (b.cursor_transaction, b.cursor_event)
                              and n.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
                            order by n.transaction_id, n.id
                            limit most) v
    ), made as (
      insert into webhook_deliveries (company_id, endpoint_id, event_id)
      select company_id, endpoint_id, event_id
        from batch
       where types = '{}' or type = any (types)
       order by transaction_id, event_id
          on conflict do nothing
    ), moved as (
      update webhook_endpoints e
         set cursor_transaction = last.transaction_id, cursor_event = last.event_id
        from (select distinct on (company_id, endpoint_id)
                     company_id, endpoint_id, transaction_id, event_id
                from batch
               order by company_id, endpoint_id, transaction_id desc, event_id desc) last
       where e.company_id = last.company_id and e.id = last.endpoint_id
    )
    select count(*) from batch;
  end;
call run_across_companies('fan_out_webhooks');
comment on function fan_out_webhooks is
  'Create deliveries of new events for up to `endpoints` endpoints, those furthest behind first. '
  'Returns the number of events read.';
