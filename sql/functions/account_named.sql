-- The operator names an account. Nothing else of other accounts is readable.
create or replace function account_named(wanted text) returns bigint
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select a.id from public.accounts a where a.name = wanted;
  end;
alter function account_named owner to einvoice_across;
revoke all on function account_named from public;
grant execute on function account_named to einvoice_service;
comment on function account_named is
  'Id of the account with this exact name. Null when there is none.';
