create or replace function record_repeated_claims() returns trigger
  set search_path = pg_catalog, public language plpgsql as $$
begin
  new.has_repeated_claims := new.claims > 1;
  return new;
end $$;
create or replace trigger submissions_repeated_claims
  before insert or update on submissions
  for each row
  when (new.has_repeated_claims <> (new.claims > 1))
  execute function record_repeated_claims();
comment on function record_repeated_claims is
  'Trigger function: keeps submissions.has_repeated_claims equal to claims > 1.';
