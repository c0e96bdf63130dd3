-- Credentials of a company's own client at the portal. No statement returns a readable secret: it
-- is sealed before it is stored.

-- name: portal_credentials_get :one
-- Return the company's own credentials, if it has any.
select tin, client_id, sealed_secret
  from portal_credentials
 where company_id = :company_id and removed_at is null;

-- name: portal_credentials_record :value
-- Return the record as JSON text, if the company has own credentials. `refused` is null unless the
-- portal refuses the login at the moment.
select json_build_object(
         'client_id', c.client_id,
         'tin', c.tin,
         'in_use', c.tin = i.tin,
         'created_at', instant(c.created_at),
         'refused', (
           select json_build_object(
                    'since', instant(r.since),
                    'retry_at', instant(r.retry_at),
                    'message', r.message)
             from refused_logins r
            where r.client_id = c.client_id
              and r.fingerprint = c.fingerprint
              and r.taxpayer = ''
              and r.retry_at > clock_timestamp() - interval '1 day'))
  from portal_credentials c
  join companies i on i.id = c.company_id
 where c.company_id = :company_id and c.removed_at is null;

-- name: portal_credentials_remove :value
-- Remove the company's credentials with their secret and return their id. No row if there are none.
with removed as (
  update portal_credentials
     set sealed_secret = null, removed_at = clock_timestamp()
   where company_id = :company_id and removed_at is null
  returning id, client_id
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'remove', format('portal credentials %s', client_id) from removed
)
select id from removed;

-- name: portal_credentials_insert :exec
-- Insert the company's credentials. Lock the company and remove its former credentials first, or
-- this violates portal_credentials_one_live.
with audited as (
  insert into audit_log (company_id, action, subject)
  values (:company_id, 'set', format('portal credentials %s', :client_id::text))
)
insert into portal_credentials (company_id, tin, client_id, fingerprint, sealed_secret)
values (:company_id, :tin, :client_id, :fingerprint, :sealed_secret);
