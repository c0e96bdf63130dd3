-- Invoices, the adjustment notes against them, and how many there are.

create table invoices (
  company_id                     bigint not null references companies,
  id                             bigint generated always as identity,
  code                           bigint not null,
  code_year                      smallint not null,  -- year of issue in the business time zone
  type                           text not null,
  status                         text not null default 'Draft',
  is_ready                       boolean not null default false,
  issue_date                     timestamptz not null,
  buyer                          jsonb,
  supplier                       jsonb,
  line_items                     jsonb not null,
  invoice_level_allowance_charge jsonb,
  currency_code                  text not null default 'MYR',
  exchange_rate                  numeric,
  net_amount                     numeric(20, 2) not null,
  excluding_tax                  numeric(20, 2) not null,
  including_tax                  numeric(20, 2) not null,
  payable_amount                 numeric(20, 2) not null,
  adjusted_by                    numeric(20, 2) not null default 0,  -- valid debit notes less valid credit and refund notes
  attempts                       int not null default 0,  -- submissions made so far
  created_at                     timestamptz not null default clock_timestamp(),
  updated_at                     timestamptz not null default clock_timestamp(),
  deleted_at                     timestamptz,  -- a deleted invoice stays, unseen, and its code is free
  primary key (company_id, id),
  constraint invoices_code_range check (code between 1 and 999999999999),
  constraint invoices_type check (type in
    ('INVOICE', 'SELF_BILLED_INVOICE', 'PENDING_FINALIZE_INVOICE', 'PENDING_FINALIZE_SELF_BILLED_INVOICE')),
  constraint invoices_status check (status in ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled')),
  constraint invoices_only_unsent_deleted check (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create unique index invoices_code_once_a_year on invoices (company_id, code_year, code) where deleted_at is null;
create index invoices_by_id on invoices (company_id, id) where deleted_at is null;
create index invoices_by_issue_date on invoices (company_id, issue_date, id) where deleted_at is null;
create index invoices_by_code on invoices (company_id, code, id) where deleted_at is null;
create index invoices_by_status on invoices (company_id, status, id) where deleted_at is null;
call keep_companies_apart('invoices');
grant select, insert, update on invoices to einvoice_service;

-- How many live invoices a company has: the sum of its slots. Several slots, so that writers do not wait for one row.
create table invoice_counts (
  company_id bigint not null references companies,
  slot       smallint not null,
  live       bigint not null,
  primary key (company_id, slot)
) with (fillfactor = 50);
call keep_companies_apart('invoice_counts');
grant select, insert, update on invoice_counts to einvoice_service;

create table adjustment_notes (
  company_id              bigint not null references companies,
  id                      bigint generated always as identity,
  invoice_id              bigint,
  consolidated_invoice_id bigint,
  code                    bigint not null,
  type                    text not null,
  status                  text not null default 'Draft',
  issue_date              timestamptz not null,
  line_items              jsonb not null,
  net_amount              numeric(20, 2) not null,
  excluding_tax           numeric(20, 2) not null,
  including_tax           numeric(20, 2) not null,
  payable_amount          numeric(20, 2) not null,
  attempts                int not null default 0,
  created_at              timestamptz not null default clock_timestamp(),
  updated_at              timestamptz not null default clock_timestamp(),
  deleted_at              timestamptz,
  primary key (company_id, id),
  foreign key (company_id, invoice_id) references invoices (company_id, id),
  constraint adjustment_notes_one_target check (num_nonnulls(invoice_id, consolidated_invoice_id) = 1),
  constraint adjustment_notes_code_range check (code between 1 and 999999999999),
  constraint adjustment_notes_type check (type in ('CREDIT_NOTE', 'DEBIT_NOTE', 'REFUND_NOTE')),
  constraint adjustment_notes_status check (status in ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled')),
  constraint adjustment_notes_only_unsent_deleted check (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create unique index adjustment_notes_code_once_a_type on adjustment_notes (company_id, type, code) where deleted_at is null;
create index adjustment_notes_by_invoice on adjustment_notes (company_id, invoice_id) where deleted_at is null;
call keep_companies_apart('adjustment_notes');
grant select, insert, update on adjustment_notes to einvoice_service;
