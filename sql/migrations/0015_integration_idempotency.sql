-- The first answers of the integration surface, kept as those of idempotency_keys, for an account.

create table integration_idempotency_keys (
  account_id  bigint not null references accounts,
  route       text not null,  -- method and path
  key         text not null,
  body_sha256 bytea not null,
  status      smallint,       -- of the answer; null while the first request is running
  answer      text,
  lease_until timestamptz,    -- until when the first request is taken to be running
  created_at  timestamptz not null default clock_timestamp(),
  primary key (account_id, route, key),
  constraint integration_idempotency_keys_answered_whole check ((status is null) = (answer is null))
);
call keep_accounts_apart('integration_idempotency_keys');
grant select, insert, update, delete on integration_idempotency_keys to einvoice_service;
