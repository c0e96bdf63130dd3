-- First answers, by owner, route and key: of a company, then the same of an account. Each kind of owner has a table of its
-- own, since it has a wall of its own.

-- name: idempotency_claim :value
-- Claims a key that is new, older than 72 hours, or whose request outlived its lease without an answer.
-- True for the claim; no row when another request has the key or its answer is kept.
insert into idempotency_keys (company_id, route, key, body_sha256, claim_token, lease_until)
values (:company_id, :route, :key, :body_sha256, :claim_token, clock_timestamp() + :lease::interval)
    on conflict (company_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = null, answer = null, claim_token = excluded.claim_token,
       lease_until = excluded.lease_until, created_at = clock_timestamp()
 where idempotency_keys.created_at < clock_timestamp() - interval '72 hours'
    or (idempotency_keys.status is null and idempotency_keys.lease_until < clock_timestamp()
        and idempotency_keys.body_sha256 = excluded.body_sha256)
returning true;

-- name: idempotency_get :one
-- The answer of a key; its status is null while its request is running.
select body_sha256, status, answer
  from idempotency_keys
 where company_id = :company_id and route = :route and key = :key;

-- name: idempotency_hold :value
-- Locks a claim until the transaction ends, so that no request can take it over meanwhile. No row: it is lost.
select true
  from idempotency_keys
 where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token
   for share;

-- name: idempotency_keep :value
-- Stores the answer of a claim. No row: the claim is lost, and the effect must not be committed.
update idempotency_keys
   set status = :status, answer = :answer
 where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token
returning true;

-- name: idempotency_drop :value
-- Releases a claim without an answer, so that the next request is the first again; a kept answer stays.
-- False when the claim is lost.
with mine as (
  select status
    from idempotency_keys
   where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token
     for update
), released as (
  delete from idempotency_keys
   where company_id = :company_id and route = :route and key = :key and claim_token = :claim_token and status is null
)
select exists (select from mine);

-- name: idempotency_sweep :exec
-- Deletes the answers that are older than they are given again.
delete from idempotency_keys
 where company_id = :company_id and created_at < clock_timestamp() - interval '72 hours';

-- name: integration_idempotency_claim :value
-- As idempotency_claim, of an account.
insert into integration_idempotency_keys (account_id, route, key, body_sha256, claim_token, lease_until)
values (:account_id, :route, :key, :body_sha256, :claim_token, clock_timestamp() + :lease::interval)
    on conflict (account_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = null, answer = null, claim_token = excluded.claim_token,
       lease_until = excluded.lease_until, created_at = clock_timestamp()
 where integration_idempotency_keys.created_at < clock_timestamp() - interval '72 hours'
    or (integration_idempotency_keys.status is null and integration_idempotency_keys.lease_until < clock_timestamp()
        and integration_idempotency_keys.body_sha256 = excluded.body_sha256)
returning true;

-- name: integration_idempotency_get :one
-- As idempotency_get, of an account.
select body_sha256, status, answer
  from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key;

-- name: integration_idempotency_hold :value
-- As idempotency_hold, of an account.
select true
  from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token
   for share;

-- name: integration_idempotency_keep :value
-- As idempotency_keep, of an account.
update integration_idempotency_keys
   set status = :status, answer = :answer
 where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token
returning true;

-- name: integration_idempotency_drop :value
-- As idempotency_drop, of an account.
with mine as (
  select status
    from integration_idempotency_keys
   where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token
     for update
), released as (
  delete from integration_idempotency_keys
   where account_id = :account_id and route = :route and key = :key and claim_token = :claim_token and status is null
)
select exists (select from mine);

-- name: integration_idempotency_sweep :exec
-- As idempotency_sweep, of an account.
delete from integration_idempotency_keys
 where account_id = :account_id and created_at < clock_timestamp() - interval '72 hours';
