-- A company without a key, or that has left to another cell, cannot send.
create or replace function hold_sending(why text) returns bigint
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with held as (
      insert into public.sending_holds (company_id, reason)
      select distinct k.company_id, why
        from public.api_keys k
       where not exists (select
                           from public.company_moves m
                          where m.company_id = k.company_id and m.state = 'Moved')
          on conflict do nothing
      returning 1
    )
    select count(*) from held;
  end;
alter function hold_sending owner to einvoice_across;
revoke all on function hold_sending from public;
grant execute on function hold_sending to einvoice_service;
comment on function hold_sending is
  'Hold sending for every company here that has an API key. Returns the number of new holds.';
