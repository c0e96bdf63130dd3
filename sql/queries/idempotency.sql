-- First responses by owner, route and key. The owner is a company or an account.

-- name: idempotency_get :one
-- Return the request that has a key: the response, or no `status` while it is in progress. No row
-- for a key that is new, older than 72 hours, or of the same body without a response after its
-- lease. A time ahead of the clock was recorded before the clock was set back.
select body_sha256, answer,
       case when is_interim
                 and created_at between clock_timestamp() - :lease::interval and clock_timestamp()
            then null
            else status end as status
  from idempotency_keys
 where owner_kind = :owner_kind and owner_id = :owner_id and route = :route and key = :key
   and created_at > clock_timestamp() - interval '72 hours'
   and (status is not null or body_sha256 is distinct from :body_sha256
        or created_at between clock_timestamp() - :lease::interval and clock_timestamp());

-- name: idempotency_keep :value
-- Store a key with its response, or without one before a request to the portal. Secrets of the
-- response are stored encrypted, next to the response without them. No row: another request has the
-- key, as in idempotency_get, and the effect must not be committed.
insert into idempotency_keys as k (owner_kind, owner_id, route, key, body_sha256, status, answer,
       sealed_secrets, is_interim, claim_token)
values (:owner_kind, :owner_id, :route, :key, :body_sha256, :status, :answer, :sealed_secrets,
        :is_interim, :claim_token)
    on conflict (owner_kind, owner_id, route, key) do update
   set body_sha256 = excluded.body_sha256, status = excluded.status, answer = excluded.answer,
       sealed_secrets = excluded.sealed_secrets, is_interim = excluded.is_interim,
       claim_token = excluded.claim_token,
       created_at = clock_timestamp()
 where k.claim_token = excluded.claim_token
    or k.created_at < clock_timestamp() - interval '72 hours'
    or (k.status is null
        and k.created_at not between clock_timestamp() - :lease::interval and clock_timestamp()
        and k.body_sha256 = excluded.body_sha256)
returning true;

-- name: idempotency_drop :value
-- Release a key that the request has stored without a response, so that a repetition runs again.
-- No row: another request has it.
delete from idempotency_keys
 where owner_kind = :owner_kind and owner_id = :owner_id and route = :route and key = :key
   and claim_token = :claim_token and status is null
returning true;

-- name: idempotency_secrets_take :value
-- Return the encrypted secrets of a response and delete them. Of several requests at the same time
-- one gets them. No row: there are none, or they were taken.
with kept as (
  select sealed_secrets
    from idempotency_keys
   where owner_kind = :owner_kind
     and owner_id = :owner_id
     and route = :route
     and key = :key
     and sealed_secrets is not null
     for update
)
update idempotency_keys k
   set sealed_secrets = null
  from kept
 where k.owner_kind = :owner_kind and k.owner_id = :owner_id and k.route = :route and k.key = :key
returning kept.sealed_secrets;

-- name: idempotency_sweep :exec
-- Delete responses that are too old to be returned again.
delete from idempotency_keys
 where owner_kind = :owner_kind and owner_id = :owner_id
   and created_at < clock_timestamp() - interval '72 hours';
