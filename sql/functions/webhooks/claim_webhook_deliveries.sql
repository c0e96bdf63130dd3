-- `companies` and `slow_ones` describe the attempts that the process has in progress, one element
-- for each. The process has `places` places. One company gets at most `share` of them, and never
-- more than it leaves free, so that another company always finds a place. Half of the places, and
-- half of a share, are kept for endpoints that are not slow. An endpoint has at most `at_once`
-- attempts in all processes, and one if it is ordered.
--
-- This is a loop because due deliveries must be read after the endpoint is locked. Read before, one
-- could be a delivery that another process has just made.
create or replace function claim_webhook_deliveries(
    lease interval, companies bigint[], slow_ones boolean[], places int, share int, at_once int)
  returns table (
    company_id bigint, id bigint, endpoint_id bigint, fence bigint, step int, event_id bigint,
    url text, slow boolean, include_record boolean, sealed_secrets bytea[], body text)
  volatile set plan_cache_mode = force_custom_plan language plpgsql as $$
#variable_conflict use_column
declare
  candidate record;
  free int := places - cardinality(companies);
  free_slow int := places / 2 - cardinality(array_positions(slow_ones, true));
  held int;
  held_slow int;
  under_way int;
  most int;
  taken int;
begin
  for candidate in
    select e.company_id, e.id, e.slow, case when e.ordered then 1 else at_once end as at_once
      from public.webhook_endpoints e
     where e.enabled
       and (not e.slow or free_slow > 0)
       and cardinality(array_positions(companies, e.company_id)) < least(share, free)
       and exists (select
                     from public.webhook_deliveries d
                    where d.company_id = e.company_id and d.endpoint_id = e.id
                      and d.status = 'Pending' and d.next_attempt_at <= clock_timestamp()
                      and (d.lease_until is null or d.lease_until < clock_timestamp()))
     order by e.served_at
       for update skip locked
  loop
    exit when free <= 0;
    select count(*), count(*) filter (where u.is_slow)
      into held, held_slow
      from unnest(companies, slow_ones) as u (company, is_slow)
     where u.company = candidate.company_id;
    select count(*) into under_way
      from public.webhook_deliveries d
     where d.company_id = candidate.company_id and d.endpoint_id = candidate.id
       and d.lease_until >= clock_timestamp();
    -- Before each place that it takes, the company has fewer than it leaves free.
    most := least(candidate.at_once - under_way, share - held, (free - held + 1) / 2);
    if candidate.slow then
      most := least(most, share / 2 - held_slow, (free_slow - held_slow + 1) / 2);
    end if;
    continue when most <= 0;
    return query
      with tried as (
        update public.webhook_deliveries d
           set attempts = d.attempts + 1, step = d.step + 1, last_attempt_at = clock_timestamp(),
               fence = d.fence + 1, lease_until = clock_timestamp() + lease
         where d.company_id = candidate.company_id
           and d.id in (select o.id
                          from public.webhook_deliveries o
                         where o.company_id = candidate.company_id and o.endpoint_id = candidate.id
                           and o.status = 'Pending' and o.next_attempt_at <= clock_timestamp()
                           and (o.lease_until is null or o.lease_until < clock_timestamp())
                         order by o.id
                         limit most)
        returning d.company_id, d.id, d.endpoint_id, d.fence, d.step, d.event_id
      ), claimed as (
        update public.webhook_endpoints e
           set served_at = clock_timestamp()
         where e.company_id = candidate.company_id and e.id = candidate.id
        returning e.company_id, e.id, e.url, e.slow, e.include_record
      )
      select t.company_id, t.id, t.endpoint_id, t.fence, t.step, t.event_id, c.url, c.slow,
             c.include_record,
             array(select s.sealed_secret
                     from public.webhook_secrets s
                    where s.company_id = t.company_id
                      and s.endpoint_id = t.endpoint_id
                      and (s.valid_until is null or s.valid_until > clock_timestamp())
                    order by s.id desc),
             json_build_object(
               'type', v.type, 'timestamp', public.instant(v.created_at), 'data', v.data)::text
        from tried t
        join claimed c on c.company_id = t.company_id and c.id = t.endpoint_id
        join public.events v on v.company_id = t.company_id and v.id = t.event_id;
    get diagnostics taken = row_count;
    companies := companies || array_fill(candidate.company_id, array[taken]);
    slow_ones := slow_ones || array_fill(candidate.slow, array[taken]);
    free := free - taken;
    free_slow := free_slow - candidate.slow::int * taken;
  end loop;
end $$;
call run_across_companies('claim_webhook_deliveries');
comment on function claim_webhook_deliveries is
  'Claim the earliest due deliveries of several endpoints for `lease`, the endpoint that waited '
  'longest first.';
