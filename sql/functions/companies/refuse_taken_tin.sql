-- The query after the lock sees what the previous holder of the lock committed. That is true in
-- read committed only.
create or replace function refuse_taken_tin() returns trigger
  volatile language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.tin = new.tin
     and (old.tin_verified_at is not null or new.tin_verified_at is null) then
    return null;
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise feature_not_supported using
      message = 'a TIN can only be set in a transaction of isolation level read committed';
  end if;
  perform public.lock_tin(new.tin);
  if exists (select from public.shared_tins s where s.tin = new.tin) then
    return null;
  end if;
  if new.id <> any (public.companies_of_tin(new.tin)) then
    raise unique_violation using
      message = 'the TIN belongs to another company',
      schema = 'public',
      table = 'companies',
      constraint = 'companies_tin_once';
  end if;
  if new.tin_verified_at is not null then
    insert into public.events (company_id, type, data)
    select c.id, 'company.updated', jsonb_build_object('company_id', c.id)
      from public.companies c
     where c.tin = new.tin
       and c.tin_verified_at is null;
  end if;
  return null;
end $$;
call run_across_companies('refuse_taken_tin', for_service => false);
create or replace trigger companies_tin_once
  after insert or update of tin_code, tin_verified_at on companies
  for each row
  when (new.tin <> '')
  execute function refuse_taken_tin();
comment on function refuse_taken_tin is
  'Trigger function: raises unique_violation (companies_tin_once) for a TIN that is verified for '
  'another company and not shared. A verification writes an event for each other company that has '
  'claimed the TIN.';
