create or replace function secrets_to_seal(version bytea)
  returns table (company_id bigint, kind text, id bigint, sealed bytea)
  stable language sql
  begin atomic
    select s.company_id, 'webhook secret', s.id, s.sealed_secret
      from webhook_secrets s
     where substring(s.sealed_secret for 4) <> version
    union all
    select c.company_id, 'signing key', c.id, c.sealed_key
      from signing_certificates c
     where substring(c.sealed_key for 4) <> version
    union all
    select p.company_id, 'portal secret', p.id, p.sealed_secret
      from portal_credentials p
     where substring(p.sealed_secret for 4) <> version;
  end;
call run_across_companies('secrets_to_seal');
comment on function secrets_to_seal is
  'Secrets of all companies that are not sealed with this version of the secret key.';
