-- First answers, by owner, route and key: of a company, then the same of an account. Each kind of owner has a table of its
-- own, since it has a wall of its own.

-- name: idempotency_claim :value
-- Takes a key that is new, older than 72 hours, or whose request died, and names the claim; no row: somebody has it.
insert into idempotency_keys (company_id, route, key, body_sha256, lease_until)
values (:company_id, :route, :key, :body_sha256, clock_timestamp() + :lease::interval)
    on conflict (company_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = null, answer = null, lease_until = excluded.lease_until,
       created_at = clock_timestamp()
 where idempotency_keys.created_at < clock_timestamp() - interval '72 hours'
    or (idempotency_keys.status is null and idempotency_keys.lease_until < clock_timestamp()
        and idempotency_keys.body_sha256 = excluded.body_sha256)
returning xmin::text;

-- name: idempotency_unclaim :exec
-- Lets go a claim of which it is not known whether it was committed.
delete from idempotency_keys
 where company_id = :company_id and route = :route and key = :key and status is null and xmin::text = :claim;

-- name: idempotency_get :one
select body_sha256, status, answer
  from idempotency_keys
 where company_id = :company_id and route = :route and key = :key;

-- name: idempotency_keep :exec
update idempotency_keys
   set status = :status, answer = :answer
 where company_id = :company_id and route = :route and key = :key;

-- name: idempotency_drop :exec
-- The answer is not one to repeat: the next request is the first again.
delete from idempotency_keys where company_id = :company_id and route = :route and key = :key and status is null;

-- name: idempotency_sweep :exec
-- What a company has kept longer than it is given again.
delete from idempotency_keys where company_id = :company_id and created_at < clock_timestamp() - interval '72 hours';

-- name: integration_idempotency_claim :value
-- As idempotency_claim, of an account.
insert into integration_idempotency_keys (account_id, route, key, body_sha256, lease_until)
values (:account_id, :route, :key, :body_sha256, clock_timestamp() + :lease::interval)
    on conflict (account_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = null, answer = null, lease_until = excluded.lease_until,
       created_at = clock_timestamp()
 where integration_idempotency_keys.created_at < clock_timestamp() - interval '72 hours'
    or (integration_idempotency_keys.status is null and integration_idempotency_keys.lease_until < clock_timestamp()
        and integration_idempotency_keys.body_sha256 = excluded.body_sha256)
returning xmin::text;

-- name: integration_idempotency_unclaim :exec
delete from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key and status is null and xmin::text = :claim;

-- name: integration_idempotency_get :one
select body_sha256, status, answer
  from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key;

-- name: integration_idempotency_keep :exec
update integration_idempotency_keys
   set status = :status, answer = :answer
 where account_id = :account_id and route = :route and key = :key;

-- name: integration_idempotency_drop :exec
delete from integration_idempotency_keys
 where account_id = :account_id and route = :route and key = :key and status is null;

-- name: integration_idempotency_sweep :exec
delete from integration_idempotency_keys
 where account_id = :account_id and created_at < clock_timestamp() - interval '72 hours';
