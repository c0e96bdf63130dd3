create or replace function document_name(kind text, id bigint) returns text
  stable parallel safe language sql
  return replace(kind, '_', ' ') || ' ' || id;
comment on function document_name is
  'Kind and id of a document, such as adjustment note 7: the subject of audit_log.';
