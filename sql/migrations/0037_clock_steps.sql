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

grant update (lease_until) on reconciliations to einvoice_across;
grant select, update on portal_buckets, portal_pauses to einvoice_across;
grant select (client_id, taxpayer, retry_at), update (retry_at) on refused_logins
  to einvoice_across;
