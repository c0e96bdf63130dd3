create or replace function instant(at timestamptz) returns text
  stable parallel safe language sql
  return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"');
comment on function instant is 'An instant as the API writes it: UTC, milliseconds, +00:00.';
