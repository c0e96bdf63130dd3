-- Requests of a higher priority take the tokens of a bucket first.

alter table portal_buckets
  add column expected_until timestamptz[] not null default '{null,null,null}',
  add constraint portal_buckets_priorities check (cardinality(expected_until) = 3);
comment on column portal_buckets.expected_until is
  'For each priority, the highest first, until when a further request is expected. Requests of '
  'lower priorities get no token before.';
