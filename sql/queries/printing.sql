-- Documents as they are printed. Every statement takes :company_id.

-- name: submitted_document_print :one
-- Return the latest submitted document of an invoice or note, with its text as it was sent.
select d.status, d.number, d.issued_at, d.uuid, d.validation_link, d.validated_at, d.cancelled_at,
       d.cancel_reason, c.content
  from submitted_documents d
  join submitted_contents c on c.company_id = d.company_id and c.submitted_document_id = d.id
 where d.company_id = :company_id and c.company_id = :company_id
   and d.document_id = :document_id
 order by d.id desc
 limit 1;

-- name: submitted_document_link :one
-- Return the status and the validation link of the latest submitted document of a document. Without
-- one they are null. There is no row if the document does not exist.
select latest.status, latest.validation_link
  from documents d
  left join lateral (
         select status, validation_link
           from submitted_documents
          where company_id = :company_id and document_id = :document_id
          order by id desc
          limit 1) latest on true
 where d.company_id = :company_id and d.id = :document_id and d.kind = :kind
   and d.deleted_at is null;
