-- Why a document was rejected or not sent: the errors of each submission, the latest first, and the
-- reason of a buyer who asked for a rejection. Errors of the service's own checks are in `not_sent`
-- of the record: `POST .../preflight` shows those of the present document.
--
--   psql "$DATABASE_URL" -v company_id=1 -v number=INV-00042 -f sql/inspect/document_rejections.sql

select d.id as submitted_document,
       d.status,
       d.updated_at as at,
       e.value ->> 'code' as code,
       e.value ->> 'path' as path,
       coalesce(e.value ->> 'message', s.last_error ->> 'message') as message,
       d.rejection_requested_at as buyer_asked_at,
       d.rejection_reason as buyer_says
  from documents_numbered(:company_id, :'number') k
  join submitted_documents d on d.company_id = :company_id and d.document_id = k.id
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
  left join lateral jsonb_array_elements(d.errors) with ordinality as e (value, place) on true
 where d.status in ('Invalid', 'Rejected', 'NotSent') or d.rejection_requested_at is not null
 order by d.id desc, e.place;
