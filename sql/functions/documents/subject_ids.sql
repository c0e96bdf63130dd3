create or replace function subject_ids(kind text, id bigint) returns jsonb
  stable parallel safe language sql
  return jsonb_build_object(kind || '_id', id);
comment on function subject_ids is
  'Id of a document as the data of events names it, such as {"adjustment_note_id": 7}.';
