create or replace view submitted_document_records with (security_invoker = true) as
select d.id,
       d.company_id,
       d.invoice_id,
       d.adjustment_note_id,
       d.consolidated_invoice_id,
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
grant select on submitted_document_records to einvoice_service, einvoice_reader;
comment on view submitted_document_records is 'Submitted documents as the API returns them.';
comment on column submitted_document_records.id is 'Identifies the submitted document.';
comment on column submitted_document_records.company_id is 'Company that submits.';
comment on column submitted_document_records.invoice_id is
  'Invoice that it is a version of. Null for other kinds.';
comment on column submitted_document_records.adjustment_note_id is
  'Note that it is a version of. Null for other kinds.';
comment on column submitted_document_records.consolidated_invoice_id is
  'Consolidated invoice that it is a version of. Null for other kinds.';
comment on column submitted_document_records.status is
  'Submitting, Submitted, Valid, Invalid, Cancelled, Rejected or NotSent.';
comment on column submitted_document_records.submission_uid is
  'The portal''s id of the submission. Null: not known.';
comment on column submitted_document_records.uuid is
  'The portal''s id of the document. Null: not known.';
comment on column submitted_document_records.long_id is
  'The portal''s long id, part of the validation link. Null: not valid yet.';
comment on column submitted_document_records.document_hash is
  'SHA-256 of the document''s bytes, in hexadecimal.';
comment on column submitted_document_records.document_version is
  'The portal''s version of the document format.';
comment on column submitted_document_records.validation_link is
  'Public page of the valid document. Null: not valid yet.';
comment on column submitted_document_records.errors is
  'Errors of the portal or of the attempt to send it, as an array for the API.';
comment on column submitted_document_records.submitted_at is
  'When the portal received it, as text. Null: not known.';
comment on column submitted_document_records.validated_at is
  'When the portal validated it, as text. Null: not yet.';
comment on column submitted_document_records.cancelled_at is
  'When it was cancelled, as text. Null: it was not.';
comment on column submitted_document_records.cancel_reason is
  'Reason of the cancellation. Null: none was requested.';
comment on column submitted_document_records.cancellable_until is
  'Until when it can be cancelled, 72 hours after it was received, as text. Null unless Valid.';
comment on column submitted_document_records.rejection_requested_at is
  'When the buyer asked for a rejection, as text. Null: never.';
comment on column submitted_document_records.rejection_reason is
  'Reason that the buyer gave. Null: none.';
comment on column submitted_document_records.created_at is 'When it was created, as text.';
comment on column submitted_document_records.updated_at is
  'When the row was last changed, as text.';
comment on column submitted_document_records.cancellation_requested_at is
  'When the cancellation in progress was requested, as text. Null: none is in progress.';
