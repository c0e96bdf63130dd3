-- Sealing secrets again with another key. The list covers all companies, each change one company.

-- name: secret_seal :exec
-- Store a secret of a :kind that was sealed again. A removed one has no secret.
with webhook as (
  update webhook_secrets
     set sealed_secret = :sealed
   where :kind = 'webhook secret' and company_id = :company_id and id = :id
), certificate as (
  update signing_certificates
     set sealed_key = :sealed
   where :kind = 'signing key' and company_id = :company_id and id = :id and removed_at is null
)
update portal_credentials
   set sealed_secret = :sealed
 where :kind = 'portal secret' and company_id = :company_id and id = :id and removed_at is null;

-- name: secret_key_ids :many
-- Return the ids of the secret keys that the stored secrets of all companies are sealed with: the
-- beginnings of these. No version is empty.
select substring(sealed for 4) as secret_key, count(*) as secrets
  from secrets_to_seal('')
 group by secret_key
 order by secret_key;
