create or replace function document_name(
    invoice_id bigint, adjustment_note_id bigint, consolidated_invoice_id bigint)
  returns text
  stable parallel safe language sql
  return format('%s %s',
                replace(document_subject(invoice_id, adjustment_note_id, consolidated_invoice_id),
                        '_', ' '),
                coalesce(invoice_id, adjustment_note_id, consolidated_invoice_id));
comment on function document_name is
  'Kind and id of a submitted document, such as adjustment note 7: the subject of audit_log.';
