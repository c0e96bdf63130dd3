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
  is_interim boolean not null default false,
  primary key (owner_kind, owner_id, route, key),
  constraint idempotency_keys_answered_whole check ((status is null) = (answer is null))
);
call keep_apart(
  'idempotency_keys', 'select, insert, update, delete', 'owner_id = current_owner(owner_kind)',
  has_secrets => true);
grant select (
  owner_kind, owner_id, route, key, status, created_at, is_interim
) on idempotency_keys to einvoice_reader;
call describe('idempotency_keys', '
  Requests of companies and accounts with an Idempotency-Key, and the first response to each.

  route: Method and path.
  key: Idempotency-Key of the request.
  body_sha256: SHA-256 of the request body. A repeat with another body is rejected.
  status: HTTP status of the response. Null: a request to the portal is in progress.
  answer: Body of the response, which may contain secrets. Null: a request to the portal is in
    progress.
  created_at: When the key, or the response of its request, was stored.
  claim_token: Token of the request that has stored the key, which may replace what it has stored.
  sealed_secrets: Secrets of the response to a form, which a page shows once. They are encrypted
    with a key that only the browser of the person has. Null: there are none, or they were shown.
  is_interim: The response is that of a creation whose submission is in progress. It is returned
    only if the request does not replace it during its lease.
');

-- The service can add rows and cannot change them. The statement that makes a change also writes
-- the row, so that neither exists without the other.
-- The company needs no foreign key: row-level security admits only the company of the transaction.
-- Its check would lock the row of the company for each change.
create table audit_log (
  company_id bigint,
  account_id bigint references accounts,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null
    default coalesce(nullif(current_setting('app.actor', true), ''), 'background'),
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
  'select, insert (company_id, account_id, action, subject, before_sha256, after_sha256, changes)',
  'company_id = current_company() and account_id is null'
  ' or account_id = current_account() and company_id is null');
create index audit_log_by_age on audit_log (company_id, id);
create index audit_log_by_subject on audit_log (company_id, subject, id);
-- Functions write what a person did to the audit log of each company. They cannot read it.
create policy written_across on audit_log for insert to einvoice_across with check (true);
grant insert (company_id, action, subject, changes) on audit_log to einvoice_across;
call describe('audit_log', '
  Changes of the records of companies and accounts: who did what. Append-only.

  company_id: Company of the record. Null: an account''s.
  account_id: Account of the record. Null: a company''s.
  at: When it happened.
  actor: Id of the API key or person, command, or background.
  action: What was done, such as create or delete.
  subject: Record that was changed, such as invoice 42.
  request_id: Id of the request. Null: not in a request.
  before_sha256: SHA-256 of the record before. Null: there was none, or it is not recorded.
  after_sha256: SHA-256 of the record after. Null: there is none, or it is not recorded.
  changes: Old and new values by member: {"city": {"old": "Ipoh", "new": "Klang"}}. Null: none are
    kept.
  client_address: Address of the client. Null: not in a request, or not known.
');

-- A log of what happened to the access of each person, who may have no company or several.
create table user_audit_log (
  user_id bigint not null references users,
  id bigint generated always as identity,
  at timestamptz not null default clock_timestamp(),
  actor text not null
    default coalesce(nullif(current_setting('app.actor', true), ''), 'background'),
  action text not null,
  company bigint,
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
grant select, insert (user_id, action, company, company_name) on user_audit_log to einvoice_service;
grant select on user_audit_log to einvoice_reader;
call describe('user_audit_log', '
  Sign-ins, wrong passwords, links and password changes of people. Append-only.

  user_id: Person whose access it is about.
  at: When it happened.
  actor: Id of a person, visitor, or command.
  action: sign_in: began a session by a password. fail: a wrong password was entered. confirm: the
    password was entered again. link: a one-time link was made. use_link: it was used. password: a
    password was stored. reset: the operator made the password void.
  company: Company of a link. Null: the operator''s link, or another action.
  company_name: Name that the company had then.
  request_id: Id of the request. Null: not in a request.
  client_address: Address of the client. Null: not in a request, or not known.
');

create table database_state (
  only_one boolean primary key default true,
  identity text,
  standbys text[] not null default '{}',
  evidence bigint not null default 0,
  guarded_until timestamptz,
  seen_at timestamptz not null default clock_timestamp(),
  stepped_at timestamptz,
  stepped_by interval,
  oldest xid8,
  open_since timestamptz not null default clock_timestamp(),
  constraint database_state_only_one check (only_one),
  constraint database_state_stepped check ((stepped_at is null) = (stepped_by is null))
);
insert into database_state default values;
grant select on database_state to einvoice_service, einvoice_reader;
grant select, insert, update on database_state to einvoice_across;
call describe('database_state', '
  One row: the database on which the service last ran, its time as processes saw it, to notice a
  step backward, and its oldest write transaction. A restored dump, a copy and a promoted standby
  have another identity. Written by record_database_identity(), record_evidence() and note_clock().

  only_one: Always true, so that there is one row.
  identity: Cluster, timeline, database and table, as database_identity() returns them. Null: the
    service has not run yet.
  standbys: Standbys that had to confirm every commit at the latest evidence, in lower case.
  evidence: Number of the latest evidence that synchronous standbys confirm every commit.
  guarded_until: Until then nothing is sent that not all `standbys` have confirmed. Null: there
    was no evidence.
  seen_at: The latest time that was seen, to a few seconds.
  stepped_at: When the latest step backward was noticed. Null: never.
  stepped_by: How far it was at least. Null: there was none.
  oldest: The oldest write transaction of the server that was open at the last look. Null: none.
  open_since: Since when it was seen, to a few seconds.
');
