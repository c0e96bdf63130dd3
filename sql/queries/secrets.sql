-- Sealing secrets again with another key. The list covers all companies, each change one company.

-- name: secrets_to_seal :many
-- Return company_id, kind, id and sealed of all secrets that are not sealed with the secret key of
-- :version.
select company_id, kind, id, sealed from secrets_to_seal(:version);

-- name: webhook_secret_seal :exec
update webhook_secrets
   set sealed_secret = :sealed
 where company_id = :company_id and id = :id;

-- name: signing_key_seal :exec
update signing_certificates
   set sealed_key = :sealed
 where company_id = :company_id and id = :id and removed_at is null;

-- name: portal_secret_seal :exec
update portal_credentials
   set sealed_secret = :sealed
 where company_id = :company_id and id = :id and removed_at is null;

-- name: secret_key_ids :many
-- Return the ids of the secret keys that the stored secrets of all companies are sealed with.
select secret_key, secrets from secret_key_ids();
