-- The operator names an account. Nothing else of other accounts is readable.
create or replace function account_named(wanted text) returns bigint
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select a.id from public.accounts a where a.name = wanted;
  end;
call run_across_companies('account_named');
comment on function account_named is
  'Id of the account with this exact name. Null when there is none.';
