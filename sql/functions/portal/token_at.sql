create or replace function token_at(taken timestamptz[], most int, span interval)
  returns timestamptz
  stable parallel safe language sql
  return taken[cardinality(taken) - most + 1] + span;
comment on function token_at is
  'Time from which a bucket lets a request through that is at most the `most`-th within `span`. '
  'Null: now.';
