-- A row reports states that are normal for a moment and a problem when they last longer than `age`.
-- A submission that is Queued again has the cause in last_error, with its beginning: the portal
-- could not be reached, or the clocks differ. The columns are those of watch().
--
-- Every process calls this every half minute. It finds its rows by partial indexes that contain
-- only problems, and scans no table. Sending and Uncertain are read separately because each has a
-- small index.
create or replace function conditions(age interval)
  returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public
  set plan_cache_mode = force_custom_plan
  language sql
  begin atomic
    select 'attention', 'UnknownOutcome', count(*), min(u.last_sent_at)
      from (select s.last_sent_at
              from public.submissions s
             where s.state = 'Sending' and s.last_sent_at < clock_timestamp() - age
            union all
            select s.last_sent_at
              from public.submissions s
             where s.state = 'Uncertain' and s.last_sent_at < clock_timestamp() - age) u
    having count(*) > 0
    union all
    select 'attention', 'SenderSilent', count(*), min(s.lease_until)
      from public.submissions s
     where s.state = 'Sending' and s.lease_until < clock_timestamp() - age
    having count(*) > 0
    union all
    select 'attention', 'UnclearCancellation', count(*), min(d.cancellation_requested_at)
      from public.submitted_documents d
     where d.cancelling_until is not null and d.cancel_sent_by < clock_timestamp() - age
    having count(*) > 0
    union all
    select 'attention', 'RepeatedFailure', count(*), min(s.updated_at)
      from public.submissions s
     where s.has_repeated_claims and s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted')
    having count(*) > 0
    union all
    select 'attention', w.code, count(*), min(w.since)
      from (select s.last_error ->> 'code' as code,
                   coalesce((s.last_error ->> 'since')::timestamptz, s.updated_at) as since
              from public.submissions s
             where s.state = 'Queued'
               and s.last_error ->> 'code' in ('PortalUnreachable', 'ClocksApart')) w
     where w.since < clock_timestamp() - age
     group by w.code
    union all
    select 'attention', 'ClockStepped', ceil(extract(epoch from c.stepped_by))::bigint, c.stepped_at
      from public.database_clock c
     where c.stepped_at > clock_timestamp() - interval '1 day'
    union all
    select 'attention', 'OpenTransaction', 1, c.open_since
      from public.database_clock c
     where c.oldest is not null
       and c.open_since < clock_timestamp() - greatest(age, interval '60 seconds')
    union all
    select 'attention', 'UnreadableRows', count(*), min(o.first_seen_at)
      from public.portal_odd_rows o
     where o.last_seen_at > clock_timestamp() - interval '3 days'
    having count(*) > 0;
  end;
alter function conditions owner to einvoice_across;
revoke all on function conditions from public;
grant execute on function conditions to einvoice_service;
comment on function conditions is
  'Conditions of all companies that an operator should know within a minute: kind, number, since '
  'when. Zero counts are left out.';
