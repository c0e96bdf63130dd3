-- The first answers to requests that carried an Idempotency-Key, kept for 72 hours.

create table idempotency_keys (
  company_id  bigint not null references companies,
  route       text not null,  -- method and path
  key         text not null,
  body_sha256 bytea not null,
  status      smallint,       -- of the answer; null while the first request is running
  answer      text,
  lease_until timestamptz,    -- until when the first request is taken to be running
  created_at  timestamptz not null default clock_timestamp(),
  primary key (company_id, route, key),
  constraint idempotency_keys_answered_whole check ((status is null) = (answer is null))
);
call keep_companies_apart('idempotency_keys');
grant select, insert, update, delete on idempotency_keys to einvoice_service;
