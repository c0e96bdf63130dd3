-- A key is looked up before its owner is known. Nothing else of other owners is readable.
create or replace function api_key_get(owner_kind text, key_id text)
  returns table (
    owner_id bigint, secret_sha256 bytea, revoked boolean, expires_at timestamptz, identity text,
    at timestamptz)
  stable rows 1 language sql
  begin atomic
    select k.owner_id, k.secret_sha256, k.revoked_at is not null, k.expires_at,
           database_identity(), clock_timestamp()
      from api_keys k
     where k.owner_kind = api_key_get.owner_kind and k.key_id = api_key_get.key_id
     limit 1;
  end;
call run_across_companies('api_key_get');
comment on function api_key_get is
  'Owner, digest and validity of the API key of this kind of owner with this exact id, in any '
  'state. No row when there is none. `identity` and `at` are those of the database.';
