-- Who did what for a company, newest first. A hash is that of the row before or after the change:
-- of the DER bytes for a certificate, of the bytes that were sent for a submitted document, of
-- fingerprint() of the row for everything else.
--
--   psql "$DATABASE_URL" -v company_id=1 -f sql/inspect/audit.sql
--
-- Run it as a member of einvoice_reader or as a superuser. Row-level security hides all rows from
-- the role of the service.

select at,
       actor,
       action,
       subject,
       request_id,
       left(encode(before_sha256, 'hex'), 16) as before,
       left(encode(after_sha256, 'hex'), 16) as after
  from audit_log
 where company_id = :company_id
 order by id desc
 limit 1000;
