-- The service cannot read sealed secrets of all companies, and need not: the id of a key is their
-- beginning.
create or replace function secret_key_ids()
  returns table (secret_key bytea, secrets bigint)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select substring(s.sealed for 4), count(*)
      from (select w.sealed_secret as sealed from public.webhook_secrets w
             union all
            select c.sealed_key from public.signing_certificates c
             union all
            select p.sealed_secret from public.portal_credentials p) s
     where s.sealed is not null
     group by 1
     order by 1;
  end;
call run_across_companies('secret_key_ids');
comment on function secret_key_ids is
  'Ids of the secret keys with which the stored secrets of all companies are sealed, and how many '
  'each has sealed.';
