-- What is kept sealed, to be sealed anew. The list is of all companies, each change of one.

-- name: secrets_to_seal :many
-- company_id, kind, id, secret, sealed of all that is not sealed by the secret key of :version; of :version null, of
-- what is not sealed at all.
select company_id, kind, id, secret, sealed from secrets_to_seal(:version);

-- name: webhook_secret_seal :exec
update webhook_secrets set secret = null, sealed_secret = :sealed where company_id = :company_id and id = :id;

-- name: signing_key_seal :exec
update signing_certificates set sealed_key = :sealed where company_id = :company_id and id = :id and removed_at is null;
