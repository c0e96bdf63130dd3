-- Who did what for a company, newest first, with old and new values of settings, webhooks, roles
-- and certificates. Secrets and documents have none. A hash is that of the row before or after the
-- change: of the DER bytes for a certificate, of the bytes that were sent for a submitted document,
-- of fingerprint() of the row for everything else.
--
--   psql "$DATABASE_URL" -v company_id=1 -f sql/inspect/audit.sql

select at,
       who,
       action,
       subject,
       changes,
       request_id,
       host(client_address) as client_address,
       left(encode(before_sha256, 'hex'), 16) as before,
       left(encode(after_sha256, 'hex'), 16) as after
  from audit_records
 where company_id = :company_id
 order by id desc
 limit 1000;
