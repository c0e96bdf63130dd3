create or replace function subject_ids(
    invoice_id bigint, adjustment_note_id bigint, consolidated_invoice_id bigint)
  returns jsonb
  immutable parallel safe language sql
  return jsonb_strip_nulls(jsonb_build_object(
    'invoice_id', invoice_id, 'adjustment_note_id', adjustment_note_id,
    'consolidated_invoice_id', consolidated_invoice_id));
comment on function subject_ids is
  'Id of a submitted document''s invoice, note or consolidated invoice, as the data of events '
  'names it.';
