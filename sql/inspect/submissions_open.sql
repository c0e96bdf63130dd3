-- Submissions that are not settled, the longest open first: for how long, when they are looked at next, and why.
--
--   psql "$DATABASE_URL" -f sql/inspect/submissions_open.sql
--
-- Of a call of many its first three documents are shown; what was merged or split is where its documents are now.
-- Accepted ones are listed while the portal validates them or a cancellation is under way. NeedsPerson is settled
-- by nobody but a person. Only a role that may step over the wall between companies sees anything here.

select s.company_id,
       s.id as submission,
       s.state,
       s.on_absence,
       count(*) as of_documents,
       (array_agg(d.number || ' ' || d.status order by d.id))[:3] as documents,
       date_trunc('second', clock_timestamp() - s.created_at) as open_for,
       s.sends,
       s.absence_confirmations as proofs,
       date_trunc('second', greatest(s.not_before, s.lease_until) - clock_timestamp()) as next_look_in,
       bool_or(d.cancelling_until is not null) as cancelling,
       s.last_error ->> 'code' as last_error,
       s.last_error ->> 'message' as says
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
 group by s.company_id, s.id
having s.state in ('Queued', 'Sending', 'Uncertain', 'NeedsPerson')
    or bool_or(d.status in ('Submitting', 'Submitted') or d.cancelling_until is not null)
 order by s.created_at;
