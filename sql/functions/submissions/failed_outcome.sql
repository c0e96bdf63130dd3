create or replace function failed_outcome(
    status text, errors jsonb, failure jsonb, at timestamptz)
  returns json
  stable language sql
  return case when status = 'NotSent'
              then json_build_object(
                     'status', status, 'code', failure -> 'code',
                     'message', failure #> '{errors,0,message}', 'at', instant(at),
                     'retryable', failure -> 'retryable', 'errors', failure -> 'errors')
              when status in ('Invalid', 'Rejected')
              then submission_outcome(status, errors -> 0, at) end;
comment on function failed_outcome is
  'The outcome of a submission that failed, as records show it, by the status of its document. '
  'Null for others. `failure` is {code, retryable, codes, errors} if nothing reached the portal.';
