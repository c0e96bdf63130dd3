-- What companies sign with. Nothing here answers with a key that is readable: it is sealed before it comes.

-- name: signing_certificate_get :one
-- The company's own certificate, if it has one. `id` is never given to another certificate.
select id, certificate, issuer_form from signing_certificates where company_id = :company_id and removed_at is null;

-- name: signing_certificate_key :value
-- The sealed key of a certificate; none once it was removed.
select sealed_key from signing_certificates where company_id = :company_id and id = :id;

-- name: signing_certificate_remove :value
-- Removes the company's certificate with its key, and returns its id; no row when there is none.
with removed as (
  update signing_certificates
     set sealed_key = null, removed_at = clock_timestamp()
   where company_id = :company_id and removed_at is null
  returning id, certificate
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256)
  select :company_id::bigint, 'remove', 'signing certificate', sha256(certificate) from removed
)
select id from removed;

-- name: signing_certificate_insert :exec
-- Lock the company and remove the certificate that it had, or this breaks signing_certificates_one_live.
with audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  values (:company_id, 'set', 'signing certificate', sha256(:certificate))
)
insert into signing_certificates (company_id, certificate, subject, issuer_form, not_before, not_after, sealed_key)
values (:company_id, :certificate, :subject, :issuer_form, :not_before, :not_after, :sealed_key);
