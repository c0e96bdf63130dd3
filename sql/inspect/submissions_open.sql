-- Submissions without a final state, the oldest first: for how long, their next step, and the last
-- error.
--
--   psql "$DATABASE_URL" -f sql/inspect/submissions_open.sql
--
-- Shows the first three documents of a submission. Documents of a merged or split submission are
-- shown where they are now. Accepted submissions are listed while the portal validates them or a
-- cancellation is in progress. NeedsPerson is resolved by a person only.

select s.company_id,
       s.id as submission,
       s.state,
       s.on_absence,
       count(*) as of_documents,
       (array_agg(d.number || ' ' || d.status order by d.id))[:3] as documents,
       date_trunc('second', clock_timestamp() - s.created_at) as open_for,
       s.sends,
       s.absence_confirmations as absence_confirmations,
       date_trunc(
         'second',
         greatest(s.not_before, s.lease_until) - clock_timestamp()) as next_look_in,
       bool_or(d.cancelling_until is not null) as cancelling,
       s.last_error ->> 'code' as last_error,
       s.last_error ->> 'message' as says
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
 group by s.company_id, s.id
having s.state in ('Queued', 'Sending', 'Uncertain', 'NeedsPerson')
    or bool_or(d.status in ('Submitting', 'Submitted') or d.cancelling_until is not null)
 order by s.created_at;
