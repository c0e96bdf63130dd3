-- Events of companies in an order that a reader can follow without missing one, and webhooks.

-- A domain: PostgreSQL prepares the checks of a table again for each statement.
create domain event_type as text
  constraint events_type check
    (value in (
      'invoice.created', 'invoice.updated', 'invoice.deleted', 'invoice.submitting',
      'invoice.submitted', 'invoice.valid', 'invoice.invalid', 'invoice.cancelled',
      'invoice.rejected', 'invoice.not_sent', 'adjustment_note.created',
      'adjustment_note.updated', 'adjustment_note.deleted',
      'adjustment_note.submitting', 'adjustment_note.submitted',
      'adjustment_note.valid', 'adjustment_note.invalid', 'adjustment_note.cancelled',
      'adjustment_note.rejected', 'adjustment_note.not_sent',
      'consolidated_invoice.created', 'consolidated_invoice.updated',
      'consolidated_invoice.deleted', 'consolidated_invoice.submitting',
      'consolidated_invoice.submitted', 'consolidated_invoice.valid',
      'consolidated_invoice.invalid', 'consolidated_invoice.cancelled',
      'consolidated_invoice.rejected', 'consolidated_invoice.not_sent',
      'einvoice_request.created', 'einvoice_request.updated',
      'einvoice_request.deleted', 'company.updated'));
comment on domain event_type is 'What an event is about, and what happened to it.';

-- PostgreSQL hands out ids before their transactions commit, so a smaller id can become visible
-- after a larger one was read. The feed therefore shows events of transactions older than every
-- running transaction, ordered by transaction.
-- Transaction ids belong to a cluster. After a dump is loaded into another cluster, set
-- events.transaction_id and webhook_endpoints.cursor_transaction to '0': the order is then that of
-- the ids of the events.
-- The company needs no foreign key: row-level security admits only the company of the transaction.
create table events (
  company_id bigint not null,
  id bigint generated always as identity,
  type event_type not null,
  data jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  transaction_id xid8 not null default pg_current_xact_id(),
  primary key (company_id, id)
);
create index events_in_order on events (company_id, transaction_id, id);
-- PostgreSQL sets the time and the transaction.
call keep_apart(
  'events', 'select, insert (company_id, type, data)',
  across => 'select, insert (company_id, type, data)');
call describe('events', '
  Events of companies, written in the transaction of the change and never changed.

  type: Type of the event, such as invoice.valid.
  data: Data of the event as the API shows it.
  transaction_id: Transaction that wrote it, which decides the order of the feed.
');

create table webhook_endpoints (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  url text not null,
  description text not null default '',
  types text[] not null default '{}',
  enabled boolean not null default true,
  cursor_transaction xid8 not null default pg_snapshot_xmin(pg_current_snapshot()),
  cursor_event bigint not null default 0,
  served_at timestamptz not null default clock_timestamp(),
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  slow boolean not null default true,
  include_record boolean not null default false,
  ordered boolean not null default false,
  primary key (company_id, id)
);
call keep_apart('webhook_endpoints', 'select, insert, update, delete', across => 'select, update');
call describe('webhook_endpoints', '
  Webhook endpoints of companies. Written by the API; the delivery flow moves cursors and claims.

  url: URL that events are sent to.
  description: Description for people. Empty: none.
  types: Types of events to deliver. Empty: all.
  enabled: Whether events are delivered.
  cursor_transaction: Transaction of the last event that a delivery was created for.
  cursor_event: Last event that a delivery was created for.
  served_at: When the endpoint was last claimed.
  updated_at: When the client last changed it.
  slow: Whether the latest attempt took a third of the timeout or more, or no attempt has ended
    yet.
  include_record: Whether deliveries contain the record that the event is about.
  ordered: Whether one event is delivered at a time, in the order of the feed.
');

-- The service adds secrets and retires them. Only a claim to deliver reads one.
create table webhook_secrets (
  company_id bigint not null,
  endpoint_id bigint not null,
  id bigint generated always as identity,
  valid_until timestamptz,
  sealed_secret bytea not null,
  primary key (company_id, endpoint_id, id),
  foreign key (company_id, endpoint_id) references webhook_endpoints (company_id, id)
    on delete cascade
);
call keep_apart(
  'webhook_secrets',
  'select (company_id, endpoint_id, id, valid_until), insert, update (valid_until, sealed_secret)',
  has_secrets => true, across => 'select');
grant select (company_id, endpoint_id, id, valid_until) on webhook_secrets to einvoice_reader;
call describe('webhook_secrets', '
  Secrets that deliveries are signed with. Added by the API, sealed with the SECRET_KEY.

  endpoint_id: Endpoint that is signed for.
  valid_until: When a replaced secret stops signing. Null: current secret.
  sealed_secret: The secret: id of the secret key (4 bytes), nonce (12), AES-256-GCM.
');

create table webhook_deliveries (
  company_id bigint not null,
  id bigint generated always as identity,
  endpoint_id bigint not null,
  event_id bigint not null,
  status text not null default 'Pending',
  attempts int not null default 0,
  step int not null default 0,
  next_attempt_at timestamptz default clock_timestamp(),
  last_attempt_at timestamptz,
  delivered_at timestamptz,
  response_status int,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  fence bigint not null default 0,
  lease_until timestamptz,
  primary key (company_id, id),
  foreign key (company_id, endpoint_id) references webhook_endpoints (company_id, id)
    on delete cascade,
  foreign key (company_id, event_id) references events (company_id, id),
  constraint webhook_deliveries_once unique (company_id, endpoint_id, event_id),
  constraint webhook_deliveries_status check (status in ('Pending', 'Delivered', 'Failed')),
  constraint webhook_deliveries_pending_has_a_time check
    ((status = 'Pending') = (next_attempt_at is not null))
);
create index webhook_deliveries_by_endpoint on webhook_deliveries (company_id, endpoint_id, id);
create index webhook_deliveries_due
  on webhook_deliveries (company_id, endpoint_id, next_attempt_at)
  where status = 'Pending';
call keep_apart('webhook_deliveries', 'select, insert, update', across => 'select, insert, update');
create index webhook_deliveries_claimed on webhook_deliveries (company_id, endpoint_id)
  where lease_until is not null;
create index webhook_deliveries_delivered
  on webhook_deliveries (company_id, endpoint_id, delivered_at)
  where delivered_at is not null;
call describe('webhook_deliveries', '
  Deliveries: one event to one endpoint, and the result.

  endpoint_id: Endpoint that is delivered to.
  event_id: Event that is delivered.
  status: Pending, Delivered or Failed.
  attempts: Attempts in total.
  step: Attempts of the current schedule. A redelivery starts again at 0.
  next_attempt_at: When the next attempt is due. Null unless Pending.
  last_attempt_at: When the latest attempt began. Null: none.
  delivered_at: When it was delivered. Null: not yet.
  response_status: HTTP status of the latest response. Null: no response.
  error: Error of the latest attempt. Null: none.
  fence: Fencing token. Grows with each claim; an attempt with a smaller token has lost its claim.
  lease_until: When the claim of the current attempt ends. Null: not claimed.
');
