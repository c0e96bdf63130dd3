-- The optional members follow the id: to cut the start of a text takes PostgreSQL the same time for
-- every length, to cut the end does not. Inlined into the views.
create or replace function record_text(id bigint, optional_members text, others json) returns text
  stable parallel safe language sql
  return concat('{"id":', id, ',', optional_members, ',', right(others::text, -1));
comment on function record_text is
  'The record of a document as JSON text, from its id, its optional members and its other members.';
