-- First responses by owner, route and key: for companies, then the same for accounts. Each kind of
-- owner has its own table and its own row-level security.

-- name: idempotency_claim :value
-- Claim a key that is new, older than 72 hours, or whose request outlived its lease without a
-- response. A lease that ends later than a new one was recorded before the clock was set back.
-- Returns true; no row if another request holds the key or its response is stored.
insert into idempotency_keys (company_id, route, key, body_sha256, claim_token, lease_until)
values (:company_id, :route, :key, :body_sha256, :claim_token, clock_timestamp() + :lease::interval)
    on conflict (company_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = null, answer = null,
       claim_token = excluded.claim_token, lease_until = excluded.lease_until,
       created_at = clock_timestamp()
 where idempotency_keys.created_at < clock_timestamp() - interval '72 hours'
    or (idempotency_keys.status is null
        and idempotency_keys.lease_until
            not between clock_timestamp() and clock_timestamp() + :lease::interval
        and idempotency_keys.body_sha256 = excluded.body_sha256)
returning true;

-- name: idempotency_get :one
-- Return the response of a key. `status` is null while its request is in progress.
select body_sha256, status, answer
  from idempotency_keys
 where company_id = :company_id and route = :route and key = :key;

-- name: idempotency_hold :value
-- Lock a claim until the transaction ends, so that no other request can take it over. No row: the
-- claim is lost.
select true
  from idempotency_keys
 where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token
   for share;

-- name: idempotency_keep :value
-- Store the response of a claim. No row: the claim is lost, and the effect must not be committed.
update idempotency_keys
   set status = :status, answer = :answer
 where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token
returning true;

-- name: idempotency_drop :value
-- Release a claim without a response, so that the next request counts as the first. A stored
-- response stays. Returns false if the claim is lost.
with mine as (
  select status
    from idempotency_keys
   where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token
     for update
), released as (
  delete from idempotency_keys
   where company_id = :company_id
     and route = :route
     and key = :key
     and claim_token = :claim_token
     and status is null
)
select exists (select from mine);

-- name: idempotency_secrets_keep :exec
-- Store the encrypted secrets of a claim's response, next to the response without them.
update idempotency_keys
   set sealed_secrets = :sealed_secrets
 where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token;

-- name: idempotency_secrets_take :value
-- Return the encrypted secrets of a response and delete them. Of several requests at the same time
-- one gets them. No row: there are none, or they were taken.
with kept as (
  select sealed_secrets
    from idempotency_keys
   where company_id = :company_id
     and route = :route
     and key = :key
     and sealed_secrets is not null
     for update
)
update idempotency_keys k
   set sealed_secrets = null
  from kept
 where k.company_id = :company_id and k.route = :route and k.key = :key
returning kept.sealed_secrets;

-- name: idempotency_sweep :exec
-- Delete responses that are too old to be returned again.
delete from idempotency_keys
 where company_id = :company_id and created_at < clock_timestamp() - interval '72 hours';

-- name: integration_idempotency_claim :value
-- Same as idempotency_claim, for an account.
insert into integration_idempotency_keys (account_id, route, key, body_sha256, claim_token,
       lease_until)
values (:account_id, :route, :key, :body_sha256, :claim_token, clock_timestamp() + :lease::interval)
    on conflict (account_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = null, answer = null,
       claim_token = excluded.claim_token, lease_until = excluded.lease_until,
       created_at = clock_timestamp()
 where integration_idempotency_keys.created_at < clock_timestamp() - interval '72 hours'
    or (integration_idempotency_keys.status is null
        and integration_idempotency_keys.lease_until < clock_timestamp()
        and integration_idempotency_keys.body_sha256 = excluded.body_sha256)
returning true;

-- name: integration_idempotency_get :one
-- Same as idempotency_get, for an account.
select body_sha256, status, answer
  from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key;

-- name: integration_idempotency_hold :value
-- Same as idempotency_hold, for an account.
select true
  from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token
   for share;

-- name: integration_idempotency_keep :value
-- Same as idempotency_keep, for an account.
update integration_idempotency_keys
   set status = :status, answer = :answer
 where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token
returning true;

-- name: integration_idempotency_drop :value
-- Same as idempotency_drop, for an account.
with mine as (
  select status
    from integration_idempotency_keys
   where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token
     for update
), released as (
  delete from integration_idempotency_keys
   where account_id = :account_id
     and route = :route
     and key = :key
     and claim_token = :claim_token
     and status is null
)
select exists (select from mine);

-- name: integration_idempotency_sweep :exec
-- Same as idempotency_sweep, for an account.
delete from integration_idempotency_keys
 where account_id = :account_id and created_at < clock_timestamp() - interval '72 hours';
