-- The query after the lock sees what the previous holder of the lock committed. That is true in
-- read committed only.
create or replace function refuse_taken_tin() returns trigger
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.tin = new.tin then
    return null;
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise feature_not_supported using
      message = 'a TIN can only be set in a transaction of isolation level read committed';
  end if;
  perform public.lock_tin(new.tin);
  if new.id <> any (public.companies_of_tin(new.tin))
     and not exists (select from public.shared_tins s where s.tin = new.tin) then
    raise unique_violation using
      message = 'the TIN belongs to another company',
      schema = 'public',
      table = 'companies',
      constraint = 'companies_tin_once';
  end if;
  return null;
end $$;
alter function refuse_taken_tin owner to einvoice_across;
revoke all on function refuse_taken_tin from public;
create or replace trigger companies_tin_once
  after insert or update of tin_code on companies
  for each row
  when (new.tin <> '')
  execute function refuse_taken_tin();
comment on function refuse_taken_tin is
  'Trigger function: raises unique_violation (companies_tin_once) for a TIN of another company '
  'that is not shared.';
