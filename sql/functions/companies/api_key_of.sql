-- A key is looked up before its owner is known. Nothing else of other owners is readable.
create or replace function api_key_of(wanted_kind text, wanted text)
  returns table (
    owner_id bigint, secret_sha256 bytea, expires_at timestamptz, revoked_at timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select k.owner_id, k.secret_sha256, k.expires_at, k.revoked_at
      from public.api_keys k
     where k.owner_kind = wanted_kind and k.key_id = wanted
     limit 1;
  end;
call run_across_companies('api_key_of');
comment on function api_key_of is
  'Owner, digest and validity of the API key of this kind of owner with this exact id. No row when '
  'there is none.';
