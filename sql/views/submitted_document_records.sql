create or replace view submitted_document_records with (security_invoker = true) as
select d.id,
       d.company_id,
       case when d.kind = 'invoice' then d.document_id end as invoice_id,
       case when d.kind = 'adjustment_note' then d.document_id end as adjustment_note_id,
       case when d.kind = 'consolidated_invoice' then d.document_id end as consolidated_invoice_id,
       d.status,
       s.submission_uid,
       d.uuid,
       d.long_id,
       d.document_hash,
       d.document_version,
       d.validation_link,
       d.errors,
       instant(d.submitted_at) as submitted_at,
       instant(d.validated_at) as validated_at,
       instant(d.cancelled_at) as cancelled_at,
       d.cancel_reason,
       case when d.status = 'Valid' then instant(d.submitted_at + interval '72 hours')
            end as cancellable_until,
       instant(d.rejection_requested_at) as rejection_requested_at,
       d.rejection_reason,
       instant(d.created_at) as created_at,
       instant(d.updated_at) as updated_at,
       instant(d.cancellation_requested_at) as cancellation_requested_at
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id;
call publish('submitted_document_records', '
  Submitted documents as the API returns them.

  invoice_id: Invoice that it is a version of. Null for other kinds.
  adjustment_note_id: Note that it is a version of. Null for other kinds.
  consolidated_invoice_id: Consolidated invoice that it is a version of. Null for other kinds.
  submission_uid: The portal''s id of the submission. Null: not known.
  errors: Errors of the portal or of the attempt to send it, as an array for the API.
  cancellable_until: Until when it can be cancelled, 72 hours after it was received, as text. Null
    unless Valid.
', 'submitted_documents');
