-- Rows of the portal that cannot be read, and its rate limits and refused logins.

create table portal_odd_rows (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  row_key text not null,
  operation text not null,
  tin text not null,
  number text,
  problems text not null,
  shown text not null,
  first_seen_at timestamptz not null default clock_timestamp(),
  last_seen_at timestamptz not null default clock_timestamp(),
  times bigint not null default 1,
  primary key (company_id, id),
  constraint portal_odd_rows_once unique (company_id, row_key),
  constraint portal_odd_rows_bounded check
    (length(row_key) <= 300 and length(problems) <= 1000 and length(shown) <= 4000)
);
call keep_apart(
  'portal_odd_rows',
  'select, insert (company_id, row_key, operation, tin, number, problems, shown), '
  'update (operation, problems, shown, last_seen_at, times)',
  across => 'select');
call describe('portal_odd_rows', '
  Rows of the portal that could not be read or have an unknown value. They are skipped; all others
  are processed.

  row_key: Uuid of the document, or a hash of the row where the uuid cannot be read.
  operation: Operation that showed it last: search, submission or details.
  tin: Taxpayer for which the portal was asked.
  number: Document number in the row. Null: cannot be read.
  problems: What is unknown or cannot be read, in words.
  shown: The row as the portal sent it, shortened.
  first_seen_at: When the portal showed it first.
  last_seen_at: When the portal showed it last, to about a minute.
  times: How often it was seen, counted at most once a minute.
');

-- While several taxpayers wait, one of them gets a share of a bucket; alone, it gets nearly all.
create table portal_buckets (
  client_id text not null,
  operation text not null,
  taxpayer text not null,
  taken timestamptz[] not null default '{}',
  takers text[] not null default '{}',
  waiting text[] not null default '{}',
  waiting_until timestamptz[] not null default '{}',
  expected_until timestamptz[] not null default '{null,null,null}',
  paused_until timestamptz,
  primary key (client_id, operation, taxpayer),
  constraint portal_buckets_takers check (cardinality(takers) = cardinality(taken)),
  constraint portal_buckets_waiting check (cardinality(waiting_until) = cardinality(waiting)),
  constraint portal_buckets_priorities check (cardinality(expected_until) = 3)
) with (fillfactor = 50);
grant select, insert, update on portal_buckets to einvoice_service;
grant select, update on portal_buckets to einvoice_across;
grant select on portal_buckets to einvoice_reader;
call describe('portal_buckets', '
  Token buckets of the portal''s rate limits, and its pauses. Shared by all companies and processes;
  tokens are written by take_portal_token().

  client_id: Client id at the portal.
  operation: Operation of the portal that is limited.
  taxpayer: TIN that the bucket belongs to. Empty: all taxpayers share it.
  taken: When each token was taken, oldest first. A promised token lies in the future.
  takers: Taxpayer of each token of taken. Empty: not known.
  waiting: Taxpayers that were recently denied a token.
  waiting_until: Until when each taxpayer of waiting counts as waiting.
  expected_until: For each priority, the highest first, until when a further request is expected.
    Requests of lower priorities get no token before.
  paused_until: When a pause that the portal asked for ends, of the bucket that all taxpayers share.
    Null: there was none.
');

create table refused_logins (
  client_id text not null,
  taxpayer text not null,
  fingerprint text not null,
  reason text not null,
  message text not null,
  refusals int not null,
  since timestamptz not null,
  retry_at timestamptz not null,
  is_trying boolean not null default false,
  primary key (client_id, taxpayer, fingerprint),
  constraint refused_logins_reason check (reason in ('login', 'token'))
);
grant select, insert, update, delete on refused_logins to einvoice_service;
grant select (
  client_id, taxpayer, reason, message, refusals, since, retry_at, is_trying
) on refused_logins to einvoice_reader;
grant select (client_id, taxpayer, retry_at), update (retry_at) on refused_logins
  to einvoice_across;
call describe('refused_logins', '
  Logins that the portal refused. No process logs in for the taxpayer before retry_at.

  client_id: Client id at the portal.
  taxpayer: TIN for which the client logs in. Empty: it logs in for itself.
  fingerprint: Short hash of the client id and its secret. Other credentials may be tried at once.
  reason: login: the login was refused. token: the portal refused the token that it had just
    issued.
  message: Message of the portal.
  refusals: Refusals since the last success. Each doubles the pause.
  since: When the first of these refusals was.
  retry_at: Until when no process logs in for the taxpayer.
  is_trying: Whether a process makes the next try. It has until retry_at to record the result.
');
