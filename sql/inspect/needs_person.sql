-- Everything that needs a person, the longest first: submissions in NeedsPerson, open findings, and
-- holds on sending.
--
--   psql "$DATABASE_URL" -f sql/inspect/needs_person.sql
--
-- Resolve them with `python run.py resolve-submission` and `resolve-finding`; `reconcile` ends a
-- hold.
-- `known` has every uuid that the portal showed for a number of the submission.

select 'submission' as what,
       s.company_id,
       s.id,
       date_trunc('second', clock_timestamp() - s.updated_at) as open_for,
       array(select d.number || ' ' || d.document_type || ' ' || d.status
               from submitted_documents d
              where d.company_id = s.company_id and d.submission_id = s.id
              order by d.id) as documents,
       encode(s.request_sha256, 'hex') as request_sha256,
       s.last_sent_at,
       s.last_error ->> 'code' as code,
       s.last_error ->> 'message' as says,
       array(select e.number || ' ' || e.uuid || ' ' || e.via
               from portal_sightings e
              where e.company_id = s.company_id and e.submission_id = s.id
              order by e.seen_at) as known
  from submissions s
 where s.state = 'NeedsPerson'
union all
select 'finding', f.company_id, f.id, date_trunc('second', clock_timestamp() - f.found_at),
       array[f.number], null, f.received_at, f.kind,
       case f.kind when 'duplicate'
            then 'Cancel ' || f.uuid || ' by ' || instant(f.received_at + interval '72 hours')
            end,
       array_remove(array[f.uuid, f.other_uuid], null)
  from findings f
 where f.resolved_at is null
union all
select 'hold', h.company_id, h.id, date_trunc('second', clock_timestamp() - h.since),
       null, null, null, null, h.reason, null
  from sending_holds h
  join companies c on c.id = h.company_id
 where h.released_at is null and c.tin <> '' and c.tin_verified_at is not null
 order by open_for desc;
