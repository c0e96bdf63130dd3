create or replace function number_or_na(number text) returns text
  immutable parallel safe language sql
  return coalesce(nullif(btrim(number), ''), 'NA');
comment on function number_or_na is
  'A number without surrounding blanks, or NA when it is absent or blank.';
