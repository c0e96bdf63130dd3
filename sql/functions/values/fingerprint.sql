create or replace function fingerprint(value jsonb) returns bytea
  immutable parallel safe language sql
  return sha256(convert_to(value::text, 'UTF8'));
comment on function fingerprint is
  'SHA-256 of a record''s JSON, so that a copy that was kept elsewhere can be compared.';
