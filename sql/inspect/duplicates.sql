-- Documents that the portal holds more than once for one submission of ours: there should be none, ever.
--
--   psql "$DATABASE_URL" -f sql/inspect/duplicates.sql
--
-- Cancel the later one at the portal while its 72 hours run. Only a role that may step over the wall between
-- companies sees anything here.

select e.company_id,
       e.submission_id as submission,
       e.number,
       d.invoice_id,
       d.status,
       d.uuid as ours,
       array_agg(e.uuid order by e.seen_at) as seen,
       array_agg(e.via order by e.seen_at) as seen_via,
       min(e.seen_at) as first_seen,
       max(e.seen_at) as last_seen
  from portal_evidence e
  left join submitted_documents d
         on d.company_id = e.company_id and d.submission_id = e.submission_id and d.number = e.number
 group by e.company_id, e.submission_id, e.number, d.invoice_id, d.status, d.uuid
having count(*) > 1
 order by first_seen;
