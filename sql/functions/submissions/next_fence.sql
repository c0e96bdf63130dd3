-- Claims that a failover lost must not have the token of a later claim, because the processes that
-- made them may still run. So a token is not only the next number, but the time, too.
create or replace function next_fence(fence bigint) returns bigint
  volatile language sql
  return greatest(fence + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
comment on function next_fence is
  'The fencing token of a new claim: greater than the former one, and no token of a lost claim.';
