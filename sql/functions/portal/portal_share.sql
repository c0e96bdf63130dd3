create or replace function portal_share(most int, others bigint) returns int
  immutable parallel safe language sql
  return case when others < 3 then (most + 2) / 3 else greatest(1, most / (others + 1)::int) end;
comment on function portal_share is
  'Number of `most` tokens that one taxpayer may have while `others` wait: a third, rounded up, '
  'or less for many.';
