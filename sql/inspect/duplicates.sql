-- Documents that the portal holds more than once for one attempt of ours: there should be none, ever.
--
--   psql "$DATABASE_URL" -f sql/inspect/duplicates.sql
--
-- Cancel the later one at the portal while its 72 hours run. Only a role that may step over the wall between
-- companies sees anything here.

select e.company_id,
       d.submission_id as submission,
       e.number,
       d.invoice_id,
       d.status,
       d.uuid as ours,
       array_agg(e.uuid order by e.seen_at) as seen,
       array_agg(e.via order by e.seen_at) as seen_via,
       min(e.seen_at) as first_seen,
       max(e.seen_at) as last_seen
  from portal_sightings e
  left join submitted_documents d
         on d.company_id = e.company_id and d.number = e.number
        and (d.submission_id = e.submission_id or e.submission_id = any (d.earlier_submissions))
 group by e.company_id, coalesce(d.submission_id, e.submission_id), d.submission_id, e.number, d.invoice_id, d.status, d.uuid
having count(distinct e.uuid) > 1
 order by first_seen;
