-- Signing certificates of companies. No statement returns a readable key: keys are sealed before
-- they are stored.

-- name: signing_certificate_get :one
-- Return the company's own certificate with its sealed key, if it has one.
select certificate, issuer_form, sealed_key
  from signing_certificates
 where company_id = :company_id and removed_at is null;

-- name: signing_certificate_remove :value
-- Remove the company's certificate with its key and return its id. No row if there is none.
with removed as (
  update signing_certificates
     set sealed_key = null, removed_at = clock_timestamp()
   where company_id = :company_id and removed_at is null
  returning id, certificate, subject, not_before, not_after
), audited as (
  insert into audit_log (company_id, action, subject, before_sha256, changes)
  select :company_id::bigint, 'remove', 'signing certificate', sha256(certificate),
         value_changes(jsonb_build_object('subject', subject, 'not_before', not_before,
                                          'not_after', not_after), null)
    from removed
)
select id from removed;

-- name: signing_certificate_insert :exec
-- Insert the company's certificate. Lock the company and remove its former certificate first, or
-- this violates signing_certificates_one_live.
with audited as (
  insert into audit_log (company_id, action, subject, after_sha256, changes)
  values (:company_id, 'set', 'signing certificate', sha256(:certificate),
          value_changes(null, jsonb_build_object('subject', :subject::text,
                                                 'not_before', :not_before::timestamptz,
                                                 'not_after', :not_after::timestamptz)))
)
insert into signing_certificates (company_id, certificate, subject, issuer_form, not_before,
       not_after, sealed_key)
values (:company_id, :certificate, :subject, :issuer_form, :not_before, :not_after, :sealed_key);
