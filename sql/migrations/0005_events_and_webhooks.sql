-- Events of companies in an order that a reader can follow without missing one, and webhooks.

-- PostgreSQL hands out ids before their transactions commit, so a smaller id can become visible
-- after a larger one was read. The feed therefore shows events of transactions older than every
-- running transaction, ordered by transaction.
-- Transaction ids belong to a cluster. After a dump is loaded into another cluster, set
-- events.transaction_id and webhook_endpoints.cursor_transaction to '0': the order is then that of
-- the ids of the events.
-- The company needs no foreign key: each statement that writes an event also writes a row that has
-- one. Every change writes an event, and a foreign key would be checked for each.
create table events (
  company_id bigint not null,
  id bigint generated always as identity,
  type text not null,
  data jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  transaction_id xid8 not null default pg_current_xact_id(),
  primary key (company_id, id)
);
create index events_in_order on events (company_id, transaction_id, id);
call keep_companies_apart('events');
grant select on events to einvoice_service;
-- PostgreSQL sets the time and the transaction.
grant insert (company_id, type, data) on events to einvoice_service;
create policy across_companies on events to einvoice_across using (true);
grant select on events to einvoice_across;
grant select on events to einvoice_reader;
-- PostgreSQL sets the time and the transaction.
grant insert (company_id, type, data) on events to einvoice_across;
comment on table events is
  'Events of companies, written in the transaction of the change and never changed.';
comment on column events.company_id is 'Company of the event.';
comment on column events.id is 'Identifies the event.';
comment on column events.type is 'Type of the event, such as invoice.valid.';
comment on column events.data is 'Data of the event as the API shows it.';
comment on column events.created_at is 'When the event was written.';
comment on column events.transaction_id is
  'Transaction that wrote it, which decides the order of the feed.';

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
call keep_companies_apart('webhook_endpoints');
grant select, insert, update, delete on webhook_endpoints to einvoice_service;
create policy across_companies on webhook_endpoints to einvoice_across using (true);
grant select, update on webhook_endpoints to einvoice_across;
grant select on webhook_endpoints to einvoice_reader;
comment on table webhook_endpoints is
  'Webhook endpoints of companies. Written by the API; the delivery flow moves cursors and claims.';
comment on column webhook_endpoints.company_id is 'Company of the endpoint.';
comment on column webhook_endpoints.id is 'Identifies the endpoint.';
comment on column webhook_endpoints.url is 'URL that events are sent to.';
comment on column webhook_endpoints.description is 'Description for people. Empty: none.';
comment on column webhook_endpoints.types is 'Types of events to deliver. Empty: all.';
comment on column webhook_endpoints.enabled is 'Whether events are delivered.';
comment on column webhook_endpoints.cursor_transaction is
  'Transaction of the last event that a delivery was created for.';
comment on column webhook_endpoints.cursor_event is 'Last event that a delivery was created for.';
comment on column webhook_endpoints.served_at is 'When the endpoint was last claimed.';
comment on column webhook_endpoints.created_at is 'When it was created.';
comment on column webhook_endpoints.updated_at is 'When the client last changed it.';
comment on column webhook_endpoints.slow is
  'Whether the latest attempt took a third of the timeout or more, or no attempt has ended yet.';
comment on column webhook_endpoints.include_record is
  'Whether deliveries contain the record that the event is about.';
comment on column webhook_endpoints.ordered is
  'Whether one event is delivered at a time, in the order of the feed.';

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
call keep_companies_apart('webhook_secrets');
grant select (company_id, endpoint_id, id, valid_until),
      insert,
      update (valid_until, sealed_secret)
  on webhook_secrets to einvoice_service;
create policy across_companies on webhook_secrets to einvoice_across using (true);
grant select on webhook_secrets to einvoice_across;
grant select (company_id, endpoint_id, id, valid_until) on webhook_secrets to einvoice_reader;
comment on table webhook_secrets is
  'Secrets that deliveries are signed with. Added by the API, sealed with the SECRET_KEY.';
comment on column webhook_secrets.company_id is 'Company of the endpoint.';
comment on column webhook_secrets.endpoint_id is 'Endpoint that is signed for.';
comment on column webhook_secrets.id is 'Identifies the secret.';
comment on column webhook_secrets.valid_until is
  'When a replaced secret stops signing. Null: current secret.';
comment on column webhook_secrets.sealed_secret is
  'The secret: id of the secret key (4 bytes), nonce (12), AES-256-GCM.';

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
call keep_companies_apart('webhook_deliveries');
grant select, insert, update on webhook_deliveries to einvoice_service;
create policy across_companies on webhook_deliveries to einvoice_across using (true);
grant select, insert, update on webhook_deliveries to einvoice_across;
grant select on webhook_deliveries to einvoice_reader;
create index webhook_deliveries_claimed on webhook_deliveries (company_id, endpoint_id)
  where lease_until is not null;
create index webhook_deliveries_delivered
  on webhook_deliveries (company_id, endpoint_id, delivered_at)
  where delivered_at is not null;
comment on table webhook_deliveries is 'Deliveries: one event to one endpoint, and the result.';
comment on column webhook_deliveries.company_id is 'Company of the endpoint.';
comment on column webhook_deliveries.id is 'Identifies the delivery.';
comment on column webhook_deliveries.endpoint_id is 'Endpoint that is delivered to.';
comment on column webhook_deliveries.event_id is 'Event that is delivered.';
comment on column webhook_deliveries.status is 'Pending, Delivered or Failed.';
comment on column webhook_deliveries.attempts is 'Attempts in total.';
comment on column webhook_deliveries.step is
  'Attempts of the current schedule. A redelivery starts again at 0.';
comment on column webhook_deliveries.next_attempt_at is
  'When the next attempt is due. Null unless Pending.';
comment on column webhook_deliveries.last_attempt_at is
  'When the latest attempt began. Null: none.';
comment on column webhook_deliveries.delivered_at is 'When it was delivered. Null: not yet.';
comment on column webhook_deliveries.response_status is
  'HTTP status of the latest response. Null: no response.';
comment on column webhook_deliveries.error is 'Error of the latest attempt. Null: none.';
comment on column webhook_deliveries.created_at is 'When it was created.';
comment on column webhook_deliveries.fence is
  'Fencing token. Grows with each claim; an attempt with a smaller token has lost its claim.';
comment on column webhook_deliveries.lease_until is
  'When the claim of the current attempt ends. Null: not claimed.';
