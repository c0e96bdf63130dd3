-- Conditions that an operator should know of within a minute, in the form of watch().

-- States that are normal for a moment and a condition when they last longer than `age`. A submission that is Queued
-- again says in last_error why: the portal could not be reached, or the clocks differ.
create function conditions(age interval) returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan language sql
  begin atomic
    select 'attention', 'UnknownOutcome', count(*), min(s.last_sent_at)
      from public.submissions s
     where s.state in ('Sending', 'Uncertain') and s.last_sent_at < clock_timestamp() - age
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
     where s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted') and s.claims > 1
    having count(*) > 0
    union all
    select 'attention', s.last_error ->> 'code', count(*), min(s.created_at)
      from public.submissions s
     where s.state = 'Queued' and s.last_error ->> 'code' in ('PortalUnreachable', 'ClocksApart')
       and s.created_at < clock_timestamp() - age
     group by s.last_error ->> 'code'
    union all
    select 'attention', 'UnreadableRows', count(*), min(o.first_seen_at)
      from public.portal_odd_rows o
     where o.last_seen_at > clock_timestamp() - interval '3 days'
    having count(*) > 0;
  end;
alter function conditions(interval) owner to einvoice_across;
revoke all on function conditions(interval) from public;
grant execute on function conditions(interval) to einvoice_service;
comment on function conditions(interval) is
  'What an operator should know of, of all companies: kind, how many, since when. Counts that are 0 are left out.';
