create or replace function moved_back(at timestamptz, step interval, now_at timestamptz)
  returns timestamptz
  immutable parallel safe language sql
  return case when at > now_at then greatest(now_at, at - step) else at end;
comment on function moved_back is
  'A time that lies ahead, moved back by the length of a step of the clock, but not into the past.';
