create or replace function document_subject(
    invoice_id bigint, adjustment_note_id bigint, consolidated_invoice_id bigint)
  returns text
  immutable parallel safe language sql
  return case when invoice_id is not null then 'invoice'
              when adjustment_note_id is not null then 'adjustment_note'
              else 'consolidated_invoice' end;
comment on function document_subject is
  'Kind of a submitted document: invoice, adjustment_note or consolidated_invoice. First part of '
  'its event types.';
