create or replace function subject_ids(
    kind text,
    id bigint,
    invoice_id bigint default null,
    consolidated_invoice_id bigint default null)
  returns jsonb
  stable parallel safe language sql
  return jsonb_build_object(kind || '_id', id)
         || case when kind = 'adjustment_note'
                 then jsonb_strip_nulls(jsonb_build_object(
                   'invoice_id', invoice_id, 'consolidated_invoice_id', consolidated_invoice_id))
                 else '{}' end;
comment on function subject_ids is
  'Id of a document as the data of events names it, such as {"adjustment_note_id": 7}, and that of '
  'the document which a note adjusts, if it is given.';
