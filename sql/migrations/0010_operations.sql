-- The audit log, and the identity of the database.

-- The service can add rows and cannot change them. The statement that makes a change also writes
-- the row, so that neither exists without the other.
create table audit_log (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null default actor(),
  action text not null,
  subject text not null,
  request_id text default nullif(current_setting('app.request_id', true), ''),
  before_sha256 bytea,
  after_sha256 bytea,
  primary key (company_id, id)
);
call keep_companies_apart('audit_log');
grant select, insert (company_id, action, subject, before_sha256, after_sha256)
  on audit_log to einvoice_service;
grant select on audit_log to einvoice_reader;
comment on table audit_log is 'Changes of companies'' records: who did what. Append-only.';
comment on column audit_log.company_id is 'Company of the record.';
comment on column audit_log.id is 'Identifies the entry.';
comment on column audit_log.at is 'When it happened.';
comment on column audit_log.actor is 'Id of the API key, command, or background.';
comment on column audit_log.action is 'What was done, such as create or delete.';
comment on column audit_log.subject is 'Record that was changed, such as invoice 42.';
comment on column audit_log.request_id is 'Id of the request. Null: not in a request.';
comment on column audit_log.before_sha256 is 'SHA-256 of the record before. Null: there was none.';
comment on column audit_log.after_sha256 is 'SHA-256 of the record after. Null: there is none.';

create table integration_audit_log (
  account_id bigint not null references accounts,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null default actor(),
  action text not null,
  subject text not null,
  request_id text default nullif(current_setting('app.request_id', true), ''),
  primary key (account_id, id)
);
call keep_accounts_apart('integration_audit_log');
grant select, insert (account_id, action, subject) on integration_audit_log to einvoice_service;
grant select on integration_audit_log to einvoice_reader;
comment on table integration_audit_log is
  'Changes of accounts'' records: who did what. Append-only.';
comment on column integration_audit_log.account_id is 'Account of the record.';
comment on column integration_audit_log.id is 'Identifies the entry.';
comment on column integration_audit_log.at is 'When it happened.';
comment on column integration_audit_log.actor is 'Id of the API key, or command.';
comment on column integration_audit_log.action is 'What was done, such as create or delete.';
comment on column integration_audit_log.subject is 'Record that was changed, such as user u1.';
comment on column integration_audit_log.request_id is 'Id of the request. Null: not in a request.';

create table database_identities (
  only_one boolean primary key default true,
  identity text not null,
  noted_at timestamptz not null default clock_timestamp(),
  constraint database_identities_only_one check (only_one)
);
grant select on database_identities to einvoice_service;
grant select, insert, update on database_identities to einvoice_across;
grant select on database_identities to einvoice_reader;
comment on table database_identities is
  'The database on which the service last ran, in one row. A restored dump, a copy and a promoted '
  'standby have another identity.';
comment on column database_identities.only_one is 'Always true, so that there is one row.';
comment on column database_identities.identity is
  'Cluster, timeline, database and table, as database_identity() returns them.';
comment on column database_identities.noted_at is 'When the identity was noted.';
