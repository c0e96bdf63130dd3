-- Several deliveries of an endpoint at a time. A claim belongs to a delivery instead of its
-- endpoint. Earlier versions claim endpoints, so that none of them may run after this migration.

alter table webhook_endpoints add column ordered boolean not null default true;
alter table webhook_endpoints alter column ordered set default false;
comment on column webhook_endpoints.ordered is
  'Whether one event is delivered at a time, in the order of the feed.';

alter table webhook_endpoints drop column fence, drop column lease_until;
alter table webhook_deliveries
  add column fence bigint not null default 0,
  add column lease_until timestamptz;
comment on column webhook_deliveries.fence is
  'Fencing token. Grows with each claim; an attempt with a smaller token has lost its claim.';
comment on column webhook_deliveries.lease_until is
  'When the claim of the current attempt ends. Null: not claimed.';
create index webhook_deliveries_claimed on webhook_deliveries (company_id, endpoint_id)
  where lease_until is not null;
create index webhook_deliveries_delivered
  on webhook_deliveries (company_id, endpoint_id, delivered_at)
  where delivered_at is not null;
