-- Everything that is known about the documents with a number, in order: events, sends, sightings at
-- the portal, and who did what.
--
--   psql "$DATABASE_URL" -v company_id=1 -v number=INV-00042 -f sql/inspect/document_history.sql

with document as (
  select id, kind, document_name(kind, id) as name
    from documents_numbered(:company_id, :'number')
), submitted as (
  select d.number, d.submission_id, d.earlier_submissions, k.name
    from document k
    join submitted_documents d on d.company_id = :company_id and d.document_id = k.id
)
select at, name as document, what, detail
  from (select v.created_at as at, k.name, v.type as what, v.data::text as detail
          from document k
          join events v
            on v.company_id = :company_id
           and v.data @> subject_ids(k.kind, k.id)
           and split_part(v.type, '.', 1) = k.kind
         union all
        select s.first_sent_at, d.name, 'first sent',
               format('submission %s, %s sends, now %s', s.id, s.sends, s.state)
          from submitted d
          join submissions s on s.company_id = :company_id
                            and (s.id = d.submission_id or s.id = any (d.earlier_submissions))
         where s.sends > 0
         union all
        select e.seen_at, d.name, 'seen at the portal',
               format('submission %s, uuid %s, by %s', e.submission_id, e.uuid, e.via)
          from submitted d
          join portal_sightings e
            on e.company_id = :company_id and e.number = d.number
           and (e.submission_id = d.submission_id or e.submission_id = any (d.earlier_submissions))
         union all
        select a.at, k.name, a.action, concat_ws(' ', 'by', a.who, a.changes::text)
          from document k
          join audit_records a on a.company_id = :company_id and a.subject = k.name) history
 order by at;
