-- Who did what for a company, newest first. A hash is of the row as it was before or after: of a certificate that of its
-- DER bytes, of a submitted document that which the portal was told, of all else `fingerprint` in sql/migrations/0022.
--
--   psql "$DATABASE_URL" -v company_id=1 -f sql/inspect/audit.sql
--
-- Only a role that may step over the wall between companies sees anything here.

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
