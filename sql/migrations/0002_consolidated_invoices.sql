-- Consolidated invoices. They come before invoices, which refer to them.

create table consolidated_invoices (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  code bigint not null,
  code_year smallint not null,
  type text not null,
  status text not null default 'Draft',
  issue_date timestamptz not null,
  month date not null,
  line_items jsonb not null,
  net_amount numeric(20, 2) not null,
  excluding_tax numeric(20, 2) not null,
  including_tax numeric(20, 2) not null,
  payable_amount numeric(20, 2) not null,
  adjusted_by numeric(20, 2) not null default 0,
  attempts int not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  invoice_ids bigint[] not null default '{}',
  invoice_level_allowance_charge jsonb,
  primary key (company_id, id),
  constraint consolidated_invoices_code_range check (code between 1 and 999999999999),
  constraint consolidated_invoices_type check
    (type in ('CONSOLIDATED_INVOICE', 'CONSOLIDATED_SELF_BILLED_INVOICE')),
  constraint consolidated_invoices_status check
    (status in ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled')),
  constraint consolidated_invoices_only_unsent_deleted check
    (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create unique index consolidated_invoices_code_once_a_year
  on consolidated_invoices (company_id, code_year, code)
  where deleted_at is null;
create index consolidated_invoices_by_id on consolidated_invoices (company_id, id)
  where deleted_at is null;
create index consolidated_invoices_by_status on consolidated_invoices (company_id, status, id)
  where deleted_at is null;
create index consolidated_invoices_by_issue_date
  on consolidated_invoices (company_id, issue_date, id)
  where deleted_at is null;
call keep_companies_apart('consolidated_invoices');
grant select, insert, update on consolidated_invoices to einvoice_service;
grant select on consolidated_invoices to einvoice_reader;
comment on table consolidated_invoices is
  'Consolidated invoices: one document for the sales of a month to buyers who asked for no '
  'invoice.';
comment on column consolidated_invoices.company_id is 'Company that issues it.';
comment on column consolidated_invoices.id is 'Identifies the consolidated invoice.';
comment on column consolidated_invoices.code is
  'Number without prefix, unique in a year among those that are not deleted.';
comment on column consolidated_invoices.code_year is 'Year of issue in the business time zone.';
comment on column consolidated_invoices.type is
  'CONSOLIDATED_INVOICE or CONSOLIDATED_SELF_BILLED_INVOICE.';
comment on column consolidated_invoices.status is
  'Draft, Submitting, Submitted, Valid, Invalid or Cancelled.';
comment on column consolidated_invoices.issue_date is 'When it is issued.';
comment on column consolidated_invoices.month is 'First day of the month of its sales.';
comment on column consolidated_invoices.line_items is 'Line items as the API shows them.';
comment on column consolidated_invoices.net_amount is
  'Sum of the line items after allowances and charges, in MYR.';
comment on column consolidated_invoices.excluding_tax is 'Total without tax, in MYR.';
comment on column consolidated_invoices.including_tax is 'Total with tax, in MYR.';
comment on column consolidated_invoices.payable_amount is 'Amount to pay, in MYR.';
comment on column consolidated_invoices.adjusted_by is
  'Valid debit notes less valid credit and refund notes, in MYR.';
comment on column consolidated_invoices.attempts is 'Submissions so far.';
comment on column consolidated_invoices.created_at is 'When it was created.';
comment on column consolidated_invoices.updated_at is 'When the row was last changed.';
comment on column consolidated_invoices.deleted_at is
  'When it was deleted. The row stays and its code is free again. Null: not deleted.';
comment on column consolidated_invoices.invoice_ids is
  'Invoices that it was made of. Stays when a cancellation releases them.';
comment on column consolidated_invoices.invoice_level_allowance_charge is
  'Allowance or charge of the whole document, as the API shows it. Null: none.';
