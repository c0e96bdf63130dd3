-- Responses to requests with an Idempotency-Key, kept for 72 hours.
--
-- The transaction of a request's effect inserts its key, so that of several requests with one key
-- one has an effect.

create table idempotency_keys (
  company_id bigint not null references companies,
  route text not null,
  key text not null,
  body_sha256 bytea not null,
  status smallint,
  answer text,
  created_at timestamptz not null default clock_timestamp(),
  claim_token uuid,
  primary key (company_id, route, key),
  constraint idempotency_keys_answered_whole check ((status is null) = (answer is null))
);
call keep_companies_apart('idempotency_keys');
grant select, insert, update, delete on idempotency_keys to einvoice_service;
grant select (
  company_id, route, key, status, created_at
) on idempotency_keys to einvoice_reader;
comment on table idempotency_keys is
  'Requests of companies with an Idempotency-Key, and the first response to each.';
comment on column idempotency_keys.company_id is 'Company that sent the request.';
comment on column idempotency_keys.route is 'Method and path.';
comment on column idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column idempotency_keys.body_sha256 is
  'SHA-256 of the request body. A repeat with another body is rejected.';
comment on column idempotency_keys.status is
  'HTTP status of the response. Null: a request to the portal is in progress.';
comment on column idempotency_keys.answer is
  'Body of the response, which may contain secrets. Null: a request to the portal is in progress.';
comment on column idempotency_keys.created_at is
  'When the key, or the response of its request, was stored.';
comment on column idempotency_keys.claim_token is
  'Token of the request that has stored the key, which may replace what it has stored.';

create table integration_idempotency_keys (
  account_id bigint not null references accounts,
  route text not null,
  key text not null,
  body_sha256 bytea not null,
  status smallint,
  answer text,
  created_at timestamptz not null default clock_timestamp(),
  claim_token uuid,
  primary key (account_id, route, key),
  constraint integration_idempotency_keys_answered_whole check
    ((status is null) = (answer is null))
);
call keep_accounts_apart('integration_idempotency_keys');
grant select, insert, update, delete on integration_idempotency_keys to einvoice_service;
grant select (
  account_id, route, key, status, created_at
) on integration_idempotency_keys to einvoice_reader;
comment on table integration_idempotency_keys is
  'Requests of accounts with an Idempotency-Key, and the first response to each.';
comment on column integration_idempotency_keys.account_id is 'Account that sent the request.';
comment on column integration_idempotency_keys.route is 'Method and path.';
comment on column integration_idempotency_keys.key is 'Idempotency-Key of the request.';
comment on column integration_idempotency_keys.body_sha256 is
  'SHA-256 of the request body. A repeat with another body is rejected.';
comment on column integration_idempotency_keys.status is
  'HTTP status of the response. Null: a request to the portal is in progress.';
comment on column integration_idempotency_keys.answer is
  'Body of the response, which may contain secrets. Null: a request to the portal is in progress.';
comment on column integration_idempotency_keys.created_at is
  'When the key, or the response of its request, was stored.';
comment on column integration_idempotency_keys.claim_token is
  'Token of the request that has stored the key, which may replace what it has stored.';
