-- A claim on an Idempotency-Key has a token. A request writes its effect only while its token is still there, so that
-- a request that was paused for longer than its lease cannot repeat what the request that took the key over has done.

alter table idempotency_keys add column claim_token uuid;  -- of the request that holds the key
alter table integration_idempotency_keys add column claim_token uuid;  -- likewise

comment on column idempotency_keys.claim_token is
  'Token of the request that claimed the key last. Its effect and its response are written only while it is the same.';
comment on column integration_idempotency_keys.claim_token is
  'Token of the request that claimed the key last. Its effect and its response are written only while it is the same.';
