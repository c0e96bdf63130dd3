-- Reads the tables and shares no code with the claims of the workers.
--
-- Every process calls this every half minute. Submissions are read by their partial indexes. Of the
-- accepted ones whose documents have an outcome, which can be as many as invoices of three days,
-- only the overdue ones are read. A held company without a verified TIN could send nothing anyway.
-- A company is due to be compared while documents may have changed since its latest comparison: for
-- 74 hours after they were sent. Those of more than 30 days ago are not listed.
create or replace function watch(
    grace interval, settle interval, proof_gap interval, every interval)
  returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public
  set plan_cache_mode = force_custom_plan
  language sql
  begin atomic
    with held as (
      select h.company_id, h.since, c.tin <> '' and c.tin_verified_at is not null as can_send
        from public.sending_holds h
        join public.companies c on c.id = h.company_id
       where h.released_at is null
    ), sending as (
      select s.company_id,
             s.state,
             greatest(s.not_before, s.lease_until) as due_at,
             s.last_sent_at
        from public.submissions s
       where (s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null)
          or s.state = 'Sending'
          or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null))
          or s.state = 'Uncertain'
          or (s.state = 'Accepted' and not s.has_outcome)
          or (s.state = 'Accepted' and s.has_outcome
              and s.not_before < statement_timestamp() - grace)
    )
    select 'overdue', s.state, count(*), min(s.due_at)
      from sending s
     where s.due_at < clock_timestamp() - grace
       and (s.state <> 'Queued'
            or not exists (select from held h where h.company_id = s.company_id))
     group by s.state
    union all
    select 'overdue', s.state, count(*), min(s.last_sent_at)
      from sending s
     where s.state in ('Sending', 'Uncertain')
       and s.last_sent_at + settle + 2 * proof_gap < clock_timestamp() - 3 * grace
       and s.due_at >= clock_timestamp() - grace
     group by s.state
    union all
    select 'overdue', 'Cancellation', count(*), min(d.cancelling_until)
      from public.submitted_documents d
     where d.cancelling_until < clock_timestamp() - grace
    having count(*) > 0
    union all
    select 'overdue', 'Delivery', count(*), min(o.due_at)
      from public.webhook_endpoints e
     cross join lateral (select min(greatest(w.next_attempt_at, w.lease_until)) as due_at
                           from public.webhook_deliveries w
                          where w.company_id = e.company_id
                            and w.endpoint_id = e.id
                            and w.status = 'Pending') o
     where e.enabled and o.due_at < clock_timestamp() - grace
    having count(*) > 0
    union all
    select 'overdue', 'Sweep', count(*), min(w.swept_at)
      from public.sweeps w
     where w.swept_at < clock_timestamp() - 24 * every
       and greatest(statement_timestamp() - interval '30 days', w.swept_at - interval '74 hours')
           < (select max(s.last_sent_at)
                from public.submissions s
               where s.company_id = w.company_id and s.last_sent_at is not null)
       and not exists (select from held h where h.company_id = w.company_id)
    having count(*) > 0
    union all
    select 'attention', 'NeedsPerson', count(*), min(s.updated_at)
      from public.submissions s
     where s.state = 'NeedsPerson'
    union all
    select 'attention', 'Finding', count(*), min(f.found_at)
      from public.sweep_findings f
     where f.resolved_at is null
    union all
    select 'attention', 'Hold', count(*), min(h.since) from held h where h.can_send;
  end;
alter function watch owner to einvoice_across;
revoke all on function watch from public;
grant execute on function watch to einvoice_service;
comment on function watch is
  'Number and oldest time of everything that waits, is overdue or needs a person, of all '
  'companies. For the watchdog.';
