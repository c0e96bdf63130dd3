-- With bytes, because to cut a text, PostgreSQL counts its characters. Inlined into statements that
-- pass columns, not expressions.
create or replace function splice_members(record json, members json) returns text
  stable parallel safe language sql
  return convert_from(
    substring(json_send(record) for octet_length(record::text) - octet_length(members::text) - 20)
      || substring(json_send(members) from 2), 'UTF8');
comment on function splice_members is
  'The text of a record, whose last member, optional_members, is replaced by the members in it.';
