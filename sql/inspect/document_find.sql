-- The documents with a number, and their submissions, the latest first. A number is used again in
-- another year, and after a deletion.
--
--   psql "$DATABASE_URL" -v company_id=1 -v number=INV-00042 -f sql/inspect/document_find.sql

select document_name(k.kind, k.id) as document,
       k.type,
       k.status,
       k.issue_date,
       k.currency_code as currency,
       k.payable_amount as amount,
       k.deleted_at,
       d.id as submitted_document,
       d.number,
       d.status as submitted_as,
       d.uuid,
       d.submitted_at,
       d.validated_at,
       d.submitted_at + interval '72 hours' as cancellable_until,
       d.validation_link
  from documents_numbered(:company_id, :'number') k
  left join submitted_documents d on d.company_id = :company_id and d.document_id = k.id
 order by k.issue_date desc, d.id desc;
