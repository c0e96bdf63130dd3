create or replace function submission_outcome(status text, error jsonb, at timestamptz) returns json
  stable language sql
  return json_build_object(
    'status', status, 'code', error -> 'code', 'message', error -> 'message', 'at', instant(at));
comment on function submission_outcome is
  'The outcome of a submission as records show it, with its first error. Null: it has no error.';
