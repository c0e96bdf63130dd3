-- The rows may then be older than what was sent. They are those of one moment, which is not before
-- the latest comparison that they record: what was sent until then is recorded too. A comparison
-- records its time only in the noted database.
create or replace function record_database_identity() returns boolean
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
declare
  here text := public.database_identity();
begin
  insert into public.database_identities (identity)
  values (here)
      on conflict do nothing;
  if found then
    return false;
  end if;
  update public.database_identities
     set identity = here, noted_at = clock_timestamp()
   where identity <> here;
  if not found then
    return false;
  end if;
  perform public.hold_sending(
    'The database was restored, copied or failed over.',
    (select max(w.swept_at) from public.sweeps w where w.swept_at <= clock_timestamp()));
  return true;
end $$;
alter function record_database_identity owner to einvoice_across;
revoke all on function record_database_identity from public;
grant execute on function record_database_identity to einvoice_service;
comment on function record_database_identity is
  'Record the identity of this database. True, with sending held for all companies, when it was '
  'another one before.';
