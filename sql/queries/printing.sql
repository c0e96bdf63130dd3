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
