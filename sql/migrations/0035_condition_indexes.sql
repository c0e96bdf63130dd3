-- conditions() is called every half minute by every process. It finds its rows by partial indexes, in which a row is
-- only while something is wrong with it, and reads no table as a whole.

-- An index whose predicate names `claims` would make each claim write into all indexes of the table: PostgreSQL leaves
-- the indexes alone (a HOT update) only where no column changes that one of them names. So the index names a column of
-- its own, which changes in the exceptional case alone. It is not a generated column, because adding one rewrites the
-- table.
alter table submissions add column has_repeated_claims boolean not null default false;
comment on column submissions.has_repeated_claims is
  'Whether claims > 1: its handling began at least twice and gave no result. Kept by a trigger.';

create function record_repeated_claims() returns trigger
  set search_path = pg_catalog, public language plpgsql as $$
begin
  new.has_repeated_claims := new.claims > 1;
  return new;
end $$;
create trigger submissions_repeated_claims before insert or update on submissions
  for each row when (new.has_repeated_claims <> (new.claims > 1)) execute function record_repeated_claims();

create index submissions_repeated_claims on submissions (company_id)
  where has_repeated_claims and state in ('Queued', 'Sending', 'Uncertain', 'Accepted');
comment on index submissions_repeated_claims is 'Submissions whose handling began again and again and gave no result.';

-- `last_error` changes together with `state` or `not_before`, which other indexes name: this one costs nothing more.
create index submissions_kept_waiting on submissions (created_at)
  where state = 'Queued' and last_error ->> 'code' in ('PortalUnreachable', 'ClocksApart');
comment on index submissions_kept_waiting is
  'Submissions that wait because the portal could not be reached, or because its clock and the database''s differ.';

update submissions set has_repeated_claims = true where claims > 1;

-- As in 0031, by the indexes above. Sending and Uncertain are looked up one by one: each has a small index.
create or replace function conditions(age interval) returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan language sql
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
