-- What happened, in order, written in the transaction of the change. The service can add, never change.

create table events (
  company_id bigint not null references companies,
  id         bigint generated always as identity,
  type       text not null,
  data       jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (company_id, id)
);
call keep_companies_apart('events');
grant select, insert on events to einvoice_service;
