-- Responses to requests with an Idempotency-Key, kept for 72 hours.
--
-- A claim on a key has a token. A request writes its effect only while its token is in the row, so
-- that a request that was paused for longer than its lease cannot repeat the effect of the request
-- that took over the key.

create table idempotency_keys (
  company_id  bigint not null references companies,
  route       text not null,
  key         text not null,
  body_sha256 bytea not null,
  status      smallint,
  answer      text,
  lease_until timestamptz,
  created_at  timestamptz not null default clock_timestamp(),
  claim_token uuid,
  primary key (company_id, route, key),
  constraint idempotency_keys_answered_whole check ((status is null) = (answer is null))
);
call keep_companies_apart('idempotency_keys');
grant select, insert, update, delete on idempotency_keys to einvoice_service;
grant select (
  company_id, route, key, status, lease_until, created_at
) on idempotency_keys to einvoice_reader;
comment on table idempotency_keys is
  'Requests of companies with an Idempotency-Key, and the first response to each.';
comment on column idempotency_keys.company_id is 'Company that sent the request.';
comment on column idempotency_keys.route is 'Method and path.';
comment on column idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column idempotency_keys.body_sha256 is
  'SHA-256 of the request body. A repeat with another body is rejected.';
comment on column idempotency_keys.status is
  'HTTP status of the response. Null: the first request is in progress.';
comment on column idempotency_keys.answer is
  'Body of the response, which may contain secrets. Null: the first request is in progress.';
comment on column idempotency_keys.lease_until is
  'Until when the first request counts as in progress.';
comment on column idempotency_keys.created_at is 'When the key was first used.';
comment on column idempotency_keys.claim_token is
  'Token of the request that claimed the key last. Its effect and response are written only while '
  'the token is the same.';

create table integration_idempotency_keys (
  account_id  bigint not null references accounts,
  route       text not null,
  key         text not null,
  body_sha256 bytea not null,
  status      smallint,
  answer      text,
  lease_until timestamptz,
  created_at  timestamptz not null default clock_timestamp(),
  claim_token uuid,
  primary key (account_id, route, key),
  constraint integration_idempotency_keys_answered_whole check
    ((status is null) = (answer is null))
);
call keep_accounts_apart('integration_idempotency_keys');
grant select, insert, update, delete on integration_idempotency_keys to einvoice_service;
grant select (
  account_id, route, key, status, lease_until, created_at
) on integration_idempotency_keys to einvoice_reader;
comment on table integration_idempotency_keys is
  'Requests of accounts with an Idempotency-Key, and the first response to each.';
comment on column integration_idempotency_keys.account_id is 'Account that sent the request.';
comment on column integration_idempotency_keys.route is 'Method and path.';
comment on column integration_idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column integration_idempotency_keys.body_sha256 is
  'SHA-256 of the request body. A repeat with another body is rejected.';
comment on column integration_idempotency_keys.status is
  'HTTP status of the response. Null: the first request is in progress.';
comment on column integration_idempotency_keys.answer is
  'Body of the response, which may contain secrets. Null: the first request is in progress.';
comment on column integration_idempotency_keys.lease_until is
  'Until when the first request counts as in progress.';
comment on column integration_idempotency_keys.created_at is 'When the key was first used.';
comment on column integration_idempotency_keys.claim_token is
  'Token of the request that claimed the key last. Its effect and response are written only while '
  'the token is the same.';
