-- Documents that the portal has more than once for one submission. There must be none.
--
--   psql "$DATABASE_URL" -f sql/inspect/duplicates.sql
--
-- Cancel the later one at the portal within its 72 hours.

select e.company_id,
       d.submission_id as submission,
       e.number,
       document_name(d.kind, d.document_id) as document,
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
 group by e.company_id, coalesce(d.submission_id, e.submission_id), d.submission_id, e.number,
          d.kind, d.document_id, d.status, d.uuid
having count(distinct e.uuid) > 1
 order by first_seen;
