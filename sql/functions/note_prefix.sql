create or replace function note_prefix(type text, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> (type || '_PREFIX');
comment on function note_prefix is
  'Prefix of the number of an adjustment note, from the company''s settings.';
