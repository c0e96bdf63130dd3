create or replace function submission_outcome(
    status text, error jsonb, at timestamptz, failure jsonb default null)
  returns json
  stable language sql
  return case when failure is null
              then json_build_object(
                     'status', status, 'code', error -> 'code', 'message', error -> 'message',
                     'at', instant(at))
              else json_build_object(
                     'status', status, 'code', failure -> 'code',
                     'message', failure #> '{errors,0,message}', 'at', instant(at),
                     'retryable', failure -> 'retryable', 'errors', failure -> 'errors') end;
comment on function submission_outcome is
  'The outcome of a submission as records show it, with its first error. Null: it has no error. '
  '`failure` is {code, retryable, codes, errors} if nothing reached the portal.';
