-- Who cancelled a document, when and why, the latest first. `who` is the key with its name, or the
-- person. Null: it was cancelled at the portal, not by this service.
--
--   psql "$DATABASE_URL" -v company_id=1 -v number=INV-00042 \
--     -f sql/inspect/document_cancellations.sql

select d.id as submitted_document,
       d.status,
       a.at as requested_at,
       a.who,
       coalesce(a.changes #>> '{reason,new}', d.cancel_reason) as reason,
       a.request_id,
       d.cancelled_at,
       d.uuid
  from documents_numbered(:company_id, :'number') k
  join submitted_documents d on d.company_id = :company_id and d.document_id = k.id
  left join audit_records a
    on a.company_id = :company_id
   and a.action = 'cancel'
   and a.subject = document_name(k.kind, k.id)
   and a.before_sha256 = decode(d.document_hash, 'hex')
 where a.id is not null or d.cancelled_at is not null
 order by d.id desc, a.id desc;
