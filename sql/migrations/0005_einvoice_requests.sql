-- Requests of buyers for an e-invoice of a sale.

create table einvoice_requests (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  invoice_code text not null,
  buyer jsonb not null,
  status text not null default 'Pending',
  invoice_id bigint,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  primary key (company_id, id),
  foreign key (company_id, invoice_id) references invoices (company_id, id),
  constraint einvoice_requests_status check (status in ('Pending', 'Approve', 'Reject'))
);
create index einvoice_requests_by_id on einvoice_requests (company_id, id)
  where deleted_at is null;
create index einvoice_requests_by_status on einvoice_requests (company_id, status, id)
  where deleted_at is null;
call keep_companies_apart('einvoice_requests');
grant select, insert, update on einvoice_requests to einvoice_service;
grant select on einvoice_requests to einvoice_reader;
comment on table einvoice_requests is
  'Requests of buyers for an e-invoice of a sale. The supplier is the company as it is when the '
  'request is read.';
comment on column einvoice_requests.company_id is 'Company that made the sale.';
comment on column einvoice_requests.id is 'Identifies the request.';
comment on column einvoice_requests.invoice_code is
  'Code or full number of an invoice, as the buyer entered it.';
comment on column einvoice_requests.buyer is 'Buyer in the form of an invoice''s buyer.';
comment on column einvoice_requests.status is 'Pending, Approve or Reject.';
comment on column einvoice_requests.invoice_id is
  'Invoice that the approval made final. Null: not approved.';
comment on column einvoice_requests.created_at is 'When it was created.';
comment on column einvoice_requests.updated_at is 'When the row was last changed.';
comment on column einvoice_requests.deleted_at is
  'When it was deleted. The row stays. Null: not deleted.';
