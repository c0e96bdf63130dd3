-- The feed of a company's events in an order that a reader can go along without missing one, and its webhooks.

-- Ids are handed out before their transactions commit, so a smaller one can appear after a greater one was read. A
-- feed therefore shows only what transactions wrote that have a smaller id than every transaction still under way,
-- in the order of those transactions: nothing can any more appear before what it has shown.
-- These ids are a cluster's own. Who loads a dump into another cluster sets them to '0' in events and in
-- webhook_endpoints.cursor_transaction: the order is then that of the events' ids.
alter table events add column transaction_id xid8 not null default '0';
alter table events alter column transaction_id set default pg_current_xact_id();
create index events_in_order on events (company_id, transaction_id, id);

create view event_records with (security_invoker = true) as
select id, company_id, transaction_id, type, data, instant(created_at) as created_at
  from events
 where transaction_id < pg_snapshot_xmin(pg_current_snapshot());
grant select on event_records to einvoice_service;

-- Where a company wants its events to be delivered.
create table webhook_endpoints (
  company_id         bigint not null references companies,
  id                 bigint generated always as identity,
  url                text not null,
  description        text not null default '',
  types              text[] not null default '{}',  -- none: every type
  enabled            boolean not null default true,
  -- The last event that deliveries were made of; at first what is under way while the endpoint is made comes after it.
  cursor_transaction xid8 not null default pg_snapshot_xmin(pg_current_snapshot()),
  cursor_event       bigint not null default 0,
  -- One process at a time delivers to an endpoint, one event after another.
  fence              bigint not null default 0,
  lease_until        timestamptz,
  served_at          timestamptz not null default clock_timestamp(),
  created_at         timestamptz not null default clock_timestamp(),
  updated_at         timestamptz not null default clock_timestamp(),
  primary key (company_id, id)
);
call keep_companies_apart('webhook_endpoints');
grant select, insert, update, delete on webhook_endpoints to einvoice_service;

-- What deliveries are signed with. The service adds secrets and retires them; only a claim to deliver shows one.
create table webhook_secrets (
  company_id  bigint not null,
  endpoint_id bigint not null,
  id          bigint generated always as identity,
  secret      bytea not null,
  valid_until timestamptz,  -- null: the present one
  primary key (company_id, endpoint_id, id),
  foreign key (company_id, endpoint_id) references webhook_endpoints (company_id, id) on delete cascade
);
call keep_companies_apart('webhook_secrets');
grant select (company_id, endpoint_id, id, valid_until), insert, update (valid_until) on webhook_secrets to einvoice_service;

-- One event for one endpoint, and what became of it.
create table webhook_deliveries (
  company_id      bigint not null,
  id              bigint generated always as identity,
  endpoint_id     bigint not null,
  event_id        bigint not null,
  status          text not null default 'Pending',
  attempts        int not null default 0,  -- in all
  step            int not null default 0,  -- attempts of the schedule, which a redelivery begins anew
  next_attempt_at timestamptz default clock_timestamp(),
  last_attempt_at timestamptz,
  delivered_at    timestamptz,
  response_status int,
  error           text,
  created_at      timestamptz not null default clock_timestamp(),
  primary key (company_id, id),
  foreign key (company_id, endpoint_id) references webhook_endpoints (company_id, id) on delete cascade,
  foreign key (company_id, event_id) references events (company_id, id),
  constraint webhook_deliveries_once unique (company_id, endpoint_id, event_id),
  constraint webhook_deliveries_status check (status in ('Pending', 'Delivered', 'Failed')),
  constraint webhook_deliveries_pending_has_a_time check ((status = 'Pending') = (next_attempt_at is not null))
);
create index webhook_deliveries_by_endpoint on webhook_deliveries (company_id, endpoint_id, id);
create index webhook_deliveries_due on webhook_deliveries (company_id, endpoint_id, next_attempt_at) where status = 'Pending';
call keep_companies_apart('webhook_deliveries');
grant select, insert, update on webhook_deliveries to einvoice_service;

create view webhook_records with (security_invoker = true) as
select id, company_id, url, description, types, enabled, instant(created_at) as created_at, instant(updated_at) as updated_at
  from webhook_endpoints;

create view webhook_delivery_records with (security_invoker = true) as
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
grant select on webhook_records, webhook_delivery_records to einvoice_service;

-- The work of delivering, whatever company it is of.
create policy across_companies on events to einvoice_across using (true);
create policy across_companies on webhook_endpoints to einvoice_across using (true);
create policy across_companies on webhook_secrets to einvoice_across using (true);
create policy across_companies on webhook_deliveries to einvoice_across using (true);
grant select on events, webhook_secrets to einvoice_across;
grant select, update on webhook_endpoints to einvoice_across;
grant select, insert, update on webhook_deliveries to einvoice_across;

-- Goes on from the cursors of those endpoints that are furthest behind, by at most `most` events each, makes
-- deliveries of what they want, and says how many events it looked at. The events' own transactions need know nothing
-- of it: what they wrote is found whenever this next runs. Planned anew each time, as is the claim: the tables grow
-- from nothing while a process keeps its plans.
create function fan_out_webhooks(endpoints int, most int) returns bigint
  volatile security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan language sql
  begin atomic
    with behind as (
      select e.company_id, e.id, e.types, e.cursor_transaction, e.cursor_event
        from public.webhook_endpoints e
       where e.enabled
         and exists (select
                       from public.events v
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
                             from public.events n
                            where n.company_id = b.company_id
                              and (n.transaction_id, n.id) > (b.cursor_transaction, b.cursor_event)
                              and n.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
                            order by n.transaction_id, n.id
                            limit most) v
    ), made as (
      insert into public.webhook_deliveries (company_id, endpoint_id, event_id)
      select company_id, endpoint_id, event_id
        from batch
       where types = '{}' or type = any (types)
       order by transaction_id, event_id
          on conflict do nothing
    ), moved as (
      update public.webhook_endpoints e
         set cursor_transaction = last.transaction_id, cursor_event = last.event_id
        from (select distinct on (company_id, endpoint_id) company_id, endpoint_id, transaction_id, event_id
                from batch
               order by company_id, endpoint_id, transaction_id desc, event_id desc) last
       where e.company_id = last.company_id and e.id = last.endpoint_id
    )
    select count(*) from batch;
  end;
alter function fan_out_webhooks(int, int) owner to einvoice_across;
revoke all on function fan_out_webhooks(int, int) from public;
grant execute on function fan_out_webhooks(int, int) to einvoice_service;

-- Claims up to `most` endpoints for `lease`, those first that have waited longest, and of each the earliest event
-- that is due. A loop, because what is due must be read after the endpoint is locked: read before, it could be what
-- another process has just delivered.
create function claim_webhook_deliveries(lease interval, most int)
  returns table (company_id bigint, id bigint, endpoint_id bigint, fence bigint, step int, event_id bigint,
                 url text, secrets bytea[], body text)
  volatile security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan
  language plpgsql as $$
#variable_conflict use_column
declare
  free record;
begin
  for free in
    select e.company_id, e.id
      from public.webhook_endpoints e
     where e.enabled
       and (e.lease_until is null or e.lease_until < clock_timestamp())
       and exists (select
                     from public.webhook_deliveries d
                    where d.company_id = e.company_id and d.endpoint_id = e.id
                      and d.status = 'Pending' and d.next_attempt_at <= clock_timestamp())
     order by e.served_at
     limit most
       for update skip locked
  loop
    return query
      with tried as (
        update public.webhook_deliveries d
           set attempts = d.attempts + 1, step = d.step + 1, last_attempt_at = clock_timestamp()
         where d.company_id = free.company_id
           and d.id = (select o.id
                         from public.webhook_deliveries o
                        where o.company_id = free.company_id and o.endpoint_id = free.id
                          and o.status = 'Pending' and o.next_attempt_at <= clock_timestamp()
                        order by o.id
                        limit 1)
        returning d.company_id, d.id, d.endpoint_id, d.step, d.event_id
      ), claimed as (
        update public.webhook_endpoints e
           set fence = e.fence + 1, lease_until = clock_timestamp() + lease, served_at = clock_timestamp()
          from tried t
         where e.company_id = t.company_id and e.id = t.endpoint_id
        returning e.company_id, e.id, e.fence, e.url
      )
      select t.company_id, t.id, t.endpoint_id, c.fence, t.step, t.event_id, c.url,
             array(select s.secret
                     from public.webhook_secrets s
                    where s.company_id = t.company_id and s.endpoint_id = t.endpoint_id
                      and (s.valid_until is null or s.valid_until > clock_timestamp())
                    order by s.id desc),
             json_build_object('type', v.type, 'timestamp', public.instant(v.created_at), 'data', v.data)::text
        from tried t
        join claimed c on c.company_id = t.company_id and c.id = t.endpoint_id
        join public.events v on v.company_id = t.company_id and v.id = t.event_id;
  end loop;
end $$;
alter function claim_webhook_deliveries(interval, int) owner to einvoice_across;
revoke all on function claim_webhook_deliveries(interval, int) from public;
grant execute on function claim_webhook_deliveries(interval, int) to einvoice_service;

-- What an event says of itself is the service's; when it was written, and by which transaction, is PostgreSQL's.
revoke insert on events from einvoice_service;
grant insert (company_id, type, data) on events to einvoice_service;
