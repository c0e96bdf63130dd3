-- A key is looked up before its account is known. Nothing else of other accounts is readable.
create or replace function integration_key_of(wanted text)
  returns table (
    account_id bigint, secret_sha256 bytea, expires_at timestamptz, revoked_at timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select k.account_id, k.secret_sha256, k.expires_at, k.revoked_at
      from public.integration_keys k
     where k.key_id = wanted
     limit 1;
  end;
alter function integration_key_of owner to einvoice_across;
revoke all on function integration_key_of from public;
grant execute on function integration_key_of to einvoice_service;
comment on function integration_key_of is
  'Account, digest and validity of the integration key with this exact id. No row when there is '
  'none.';
