-- Serialises all decisions about who has a TIN.
create or replace function lock_tin(tin text) returns void
  volatile language sql
  return pg_advisory_xact_lock(hashtextextended('TIN ' || tin, 0));
comment on function lock_tin is 'Lock a normalised TIN until the transaction ends.';
