create or replace function absent_or_like(given text, form text) returns boolean
  immutable parallel safe language sql
  return coalesce(btrim(given), '') = '' or btrim(given) ~ form;
comment on function absent_or_like is
  'Whether a text is absent, blank, or matches a regular expression.';
