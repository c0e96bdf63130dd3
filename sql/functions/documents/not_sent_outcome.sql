create or replace function not_sent_outcome(failure jsonb, at timestamptz) returns json
  stable language sql
  return json_build_object(
    'status', 'NotSent',
    'code', failure -> 'code',
    'message', failure #> '{errors,0,message}',
    'at', instant(at),
    'retryable', failure -> 'retryable',
    'errors', failure -> 'errors');
comment on function not_sent_outcome is
  'The outcome of a submission of which nothing reached the portal, as records show it. `failure` '
  'is {code, retryable, codes, errors}, and `at` is when it was found.';
