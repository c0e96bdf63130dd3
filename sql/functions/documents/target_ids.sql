create or replace function target_ids(kind text, invoice_id bigint, consolidated_invoice_id bigint)
  returns jsonb
  stable parallel safe language sql
  return case when kind = 'adjustment_note'
              then jsonb_strip_nulls(jsonb_build_object(
                'invoice_id', invoice_id, 'consolidated_invoice_id', consolidated_invoice_id))
              else '{}' end;
comment on function target_ids is
  'Id of the document that a note adjusts, as the data of events names it. Empty for other kinds.';
