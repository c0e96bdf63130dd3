create or replace function own_portal_clients()
  returns table (company_id bigint, tin text, client_id text, fingerprint text)
  stable language sql
  begin atomic
    select c.company_id, c.tin, c.client_id, c.fingerprint
      from portal_credentials c
     where c.removed_at is null;
  end;
call run_across_companies('own_portal_clients');
comment on function own_portal_clients is
  'The companies that log in to the portal with a client of their own, without secrets.';
