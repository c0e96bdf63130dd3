-- Idempotency keys, audit logs, and the identity and the clock of the database.

-- Responses to requests with an Idempotency-Key, kept for 72 hours.
--
-- The transaction of a request's effect inserts its key, so that of several requests with one key
-- one has an effect.
create table idempotency_keys (
  owner_kind text not null,
  owner_id bigint not null,
  route text not null,
  key text not null,
  body_sha256 bytea not null,
  status smallint,
  answer text,
  created_at timestamptz not null default clock_timestamp(),
  claim_token uuid,
  sealed_secrets bytea,
  primary key (owner_kind, owner_id, route, key),
  constraint idempotency_keys_answered_whole check ((status is null) = (answer is null))
);
call keep_apart('idempotency_keys');
grant select, insert, update, delete on idempotency_keys to einvoice_service;
grant select (
  owner_kind, owner_id, route, key, status, created_at
) on idempotency_keys to einvoice_reader;
comment on table idempotency_keys is
  'Requests of companies and accounts with an Idempotency-Key, and the first response to each.';
comment on column idempotency_keys.owner_kind is 'company or account.';
comment on column idempotency_keys.owner_id is 'Id of the company or account.';
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
comment on column idempotency_keys.sealed_secrets is
  'Secrets of the response to a form, which a page shows once. They are encrypted with a key that '
  'only the browser of the person has. Null: there are none, or they were shown.';

-- The service can add rows and cannot change them. The statement that makes a change also writes
-- the row, so that neither exists without the other.
create table audit_log (
  company_id bigint references companies,
  account_id bigint references accounts,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null default actor(),
  action text not null,
  subject text not null,
  request_id text default nullif(current_setting('app.request_id', true), ''),
  before_sha256 bytea,
  after_sha256 bytea,
  changes jsonb,
  client_address inet default nullif(current_setting('app.client_address', true), '')::inet
);
call keep_apart(
  'audit_log',
  'company_id = current_company() and account_id is null'
  ' or account_id = current_account() and company_id is null');
grant select,
      insert (company_id, account_id, action, subject, before_sha256, after_sha256, changes)
  on audit_log to einvoice_service;
grant select on audit_log to einvoice_reader;
create index audit_log_by_age on audit_log (company_id, id);
create index audit_log_by_subject on audit_log (company_id, subject, id);
-- Functions write what a person did to the audit log of each company. They cannot read it.
create policy written_across on audit_log for insert to einvoice_across with check (true);
grant insert (company_id, action, subject, changes) on audit_log to einvoice_across;
comment on table audit_log is
  'Changes of the records of companies and accounts: who did what. Append-only.';
comment on column audit_log.company_id is 'Company of the record. Null: an account''s.';
comment on column audit_log.account_id is 'Account of the record. Null: a company''s.';
comment on column audit_log.id is 'Identifies the entry.';
comment on column audit_log.at is 'When it happened.';
comment on column audit_log.actor is 'Id of the API key, command, or background.';
comment on column audit_log.action is 'What was done, such as create or delete.';
comment on column audit_log.subject is 'Record that was changed, such as invoice 42.';
comment on column audit_log.request_id is 'Id of the request. Null: not in a request.';
comment on column audit_log.before_sha256 is 'SHA-256 of the record before. Null: there was none.';
comment on column audit_log.after_sha256 is 'SHA-256 of the record after. Null: there is none.';
comment on column audit_log.changes is
  'Old and new values by member: {"city": {"old": "Ipoh", "new": "Klang"}}. Null: none are kept.';
comment on column audit_log.client_address is
  'Address of the client. Null: not in a request, or not known.';

-- A log of what happened to the access of each person, who may have no company or several.
create table user_audit_log (
  user_id bigint not null references users,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null default actor(),
  action text not null,
  company_name text,
  request_id text default nullif(current_setting('app.request_id', true), ''),
  client_address inet default nullif(current_setting('app.client_address', true), '')::inet,
  primary key (user_id, id),
  constraint user_audit_log_action check
    (action in ('sign_in', 'fail', 'confirm', 'link', 'use_link', 'password', 'reset'))
);
create index user_audit_log_sign_ins on user_audit_log (user_id, client_address)
  where action = 'sign_in';
create index user_audit_log_links on user_audit_log (user_id, id) where action = 'link';
grant select, insert (user_id, action, company_name) on user_audit_log to einvoice_service;
grant select on user_audit_log to einvoice_reader;
comment on table user_audit_log is
  'Sign-ins, wrong passwords, links and password changes of people. Append-only.';
comment on column user_audit_log.user_id is 'Person whose access it is about.';
comment on column user_audit_log.id is 'Identifies the entry.';
comment on column user_audit_log.at is 'When it happened.';
comment on column user_audit_log.actor is 'Id of a person, visitor, or command.';
comment on column user_audit_log.action is
  'sign_in: began a session by a password. fail: a wrong password was entered. confirm: the '
  'password was entered again. link: a one-time link was made. use_link: it was used. password: a '
  'password was stored. reset: the operator made the password void.';
comment on column user_audit_log.company_name is
  'Name that the company of a link had then. Null: the operator''s link, or another action.';
comment on column user_audit_log.request_id is 'Id of the request. Null: not in a request.';
comment on column user_audit_log.client_address is
  'Address of the client. Null: not in a request, or not known.';

create table database_identities (
  only_one boolean primary key default true,
  identity text not null,
  noted_at timestamptz not null default clock_timestamp(),
  standbys text[] not null default '{}',
  evidence bigint not null default 0,
  guarded_until timestamptz,
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
comment on column database_identities.standbys is
  'Standbys that had to confirm every commit at the latest evidence, in lower case.';
comment on column database_identities.evidence is
  'Number of the latest evidence that synchronous standbys confirm every commit.';
comment on column database_identities.guarded_until is
  'Until then nothing is sent that not all `standbys` have confirmed. Null: there was no evidence.';

-- Steps of the database's clock, and write transactions that stay open. See note_clock().
create table database_clock (
  only_one boolean primary key default true,
  seen_at timestamptz not null default clock_timestamp(),
  stepped_at timestamptz,
  stepped_by interval,
  oldest xid8,
  open_since timestamptz not null default clock_timestamp(),
  constraint database_clock_only_one check (only_one),
  constraint database_clock_stepped check ((stepped_at is null) = (stepped_by is null))
);
insert into database_clock default values;
grant select on database_clock to einvoice_service;
grant select, update on database_clock to einvoice_across;
grant select on database_clock to einvoice_reader;
comment on table database_clock is
  'The time of the database as processes saw it, to notice a step backward, and its oldest write '
  'transaction. One row.';
comment on column database_clock.only_one is 'True.';
comment on column database_clock.seen_at is 'The latest time that was seen, to a few seconds.';
comment on column database_clock.stepped_at is
  'When the latest step backward was noticed. Null: never.';
comment on column database_clock.stepped_by is 'How far it was at least. Null: there was none.';
comment on column database_clock.oldest is
  'The oldest write transaction of the server that was open at the last look. Null: none.';
comment on column database_clock.open_since is 'Since when it was seen, to a few seconds.';
