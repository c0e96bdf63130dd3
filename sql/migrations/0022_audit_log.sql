-- Who did what: a row that the service can add and cannot change, by the statement that does it, so that neither is there
-- without the other.

-- Who acts in this transaction: a key by its id, a command, or the background's work.
create function actor() returns text
  stable parallel safe language sql
  return coalesce(nullif(current_setting('app.actor', true), ''), 'background');

-- What a row was or became, so that one that was kept elsewhere can be held against it.
create function fingerprint(value jsonb) returns bytea
  immutable parallel safe language sql
  return sha256(convert_to(value::text, 'UTF8'));

create table audit_log (
  company_id    bigint not null references companies,
  id            bigint generated always as identity,
  at            timestamptz not null default clock_timestamp(),
  actor         text not null default actor(),
  action        text not null,
  subject       text not null,
  request_id    text default nullif(current_setting('app.request_id', true), ''),
  before_sha256 bytea,
  after_sha256  bytea,
  primary key (company_id, id)
);
call keep_companies_apart('audit_log');
grant select, insert (company_id, action, subject, before_sha256, after_sha256) on audit_log to einvoice_service;

-- The same of accounts.
create table integration_audit_log (
  account_id    bigint not null references accounts,
  id            bigint generated always as identity,
  at            timestamptz not null default clock_timestamp(),
  actor         text not null default actor(),
  action        text not null,
  subject       text not null,
  request_id    text default nullif(current_setting('app.request_id', true), ''),
  primary key (account_id, id)
);
call keep_accounts_apart('integration_audit_log');
grant select, insert (account_id, action, subject) on integration_audit_log to einvoice_service;
