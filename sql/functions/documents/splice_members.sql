-- PostgreSQL cuts the start of a text in a time that does not depend on its length, unlike the end.
create or replace function splice_members(id bigint, record json, members json) returns text
  stable parallel safe language sql
  return concat(
    '{"id":', id, ',', substr(left(members::text, -1), 2),
    right(record::text, -26 - length(id::text) - length(members::text)));
comment on function splice_members is
  'The text of a record, in which the second member, optional_members, is replaced by the members '
  'in it. The first one is the id.';
