-- Invoices, and the counts of the lists.

create table invoices (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  code bigint not null,
  code_year smallint not null,
  type text not null,
  status text not null default 'Draft',
  is_ready boolean not null default false,
  issue_date timestamptz not null,
  buyer jsonb,
  supplier jsonb,
  line_items jsonb not null,
  invoice_level_allowance_charge jsonb,
  currency_code text not null default 'MYR',
  exchange_rate numeric,
  net_amount numeric(20, 2) not null,
  excluding_tax numeric(20, 2) not null,
  including_tax numeric(20, 2) not null,
  payable_amount numeric(20, 2) not null,
  adjusted_by numeric(20, 2) not null default 0,
  attempts int not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  consolidated_invoice_id bigint,
  payment jsonb,
  delivery jsonb,
  billing_period jsonb,
  document_references jsonb,
  primary key (company_id, id),
  constraint invoices_consolidated_in foreign key (company_id, consolidated_invoice_id)
    references consolidated_invoices (company_id, id),
  constraint invoices_code_range check (code between 1 and 999999999999),
  constraint invoices_type check
    (type in ('INVOICE', 'SELF_BILLED_INVOICE',
              'PENDING_FINALIZE_INVOICE', 'PENDING_FINALIZE_SELF_BILLED_INVOICE')),
  constraint invoices_status check
    (status in ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled')),
  constraint invoices_only_unsent_deleted check
    (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create unique index invoices_code_once_a_year on invoices (company_id, code_year, code)
  where deleted_at is null;
create index invoices_by_id on invoices (company_id, id) where deleted_at is null;
create index invoices_by_issue_date on invoices (company_id, issue_date, id)
  where deleted_at is null;
create index invoices_by_code on invoices (company_id, code, id) where deleted_at is null;
create index invoices_by_status on invoices (company_id, status, id) where deleted_at is null;
create index invoices_by_consolidated_invoice on invoices (company_id, consolidated_invoice_id)
  where consolidated_invoice_id is not null;
call keep_companies_apart('invoices');
grant select, insert, update on invoices to einvoice_service;
grant select on invoices to einvoice_reader;
comment on table invoices is
  'Invoices and self-billed invoices. Written by the API and, for the status, by the submission '
  'flow.';
comment on column invoices.company_id is 'Company that issues it, or receives a self-billed one.';
comment on column invoices.id is 'Identifies the invoice.';
comment on column invoices.code is
  'Number without prefix, unique in a year among those that are not deleted.';
comment on column invoices.code_year is 'Year of issue in the business time zone.';
comment on column invoices.type is
  'INVOICE, SELF_BILLED_INVOICE, or one of these that is not final yet (PENDING_FINALIZE_...).';
comment on column invoices.status is 'Draft, Submitting, Submitted, Valid, Invalid or Cancelled.';
comment on column invoices.is_ready is
  'Whether the client marked the invoice as ready to be submitted.';
comment on column invoices.issue_date is 'When it is issued.';
comment on column invoices.buyer is
  'Buyer as the API shows it. Null for self-billed invoices and while not known.';
comment on column invoices.supplier is
  'Supplier of a self-billed invoice as the API shows it. Null for other invoices.';
comment on column invoices.line_items is 'Line items as the API shows them.';
comment on column invoices.invoice_level_allowance_charge is
  'Allowance or charge of the whole document, as the API shows it. Null: none.';
comment on column invoices.currency_code is 'Currency of all amounts, ISO 4217.';
comment on column invoices.exchange_rate is 'MYR for one unit of the currency. Null: not given.';
comment on column invoices.net_amount is 'Sum of the line items after allowances and charges.';
comment on column invoices.excluding_tax is 'Total without tax.';
comment on column invoices.including_tax is 'Total with tax.';
comment on column invoices.payable_amount is 'Amount to pay.';
comment on column invoices.adjusted_by is 'Valid debit notes less valid credit and refund notes.';
comment on column invoices.attempts is 'Submissions so far.';
comment on column invoices.created_at is 'When it was created.';
comment on column invoices.updated_at is 'When the row was last changed.';
comment on column invoices.deleted_at is
  'When it was deleted. The row stays and its code is free again. Null: not deleted.';
comment on column invoices.consolidated_invoice_id is
  'Consolidated invoice that includes the invoice now. Null: none.';
comment on column invoices.payment is
  'Terms and means of payment as the API shows them. Null: none.';
comment on column invoices.delivery is 'Delivery as the API shows it. Null: none.';
comment on column invoices.billing_period is
  'Period that is billed, as the API shows it. Null: none.';
comment on column invoices.document_references is
  'References to other documents, as the API shows them. Null: none.';

-- Several slots for each company, so that concurrent writers do not wait for one row.
create table invoice_counts (
  company_id bigint not null references companies,
  slot smallint not null,
  live bigint not null,
  primary key (company_id, slot)
) with (fillfactor = 50);
call keep_companies_apart('invoice_counts');
grant select, insert, update on invoice_counts to einvoice_service;
grant select on invoice_counts to einvoice_reader;
comment on table invoice_counts is
  'Number of invoices of each company, kept by the statements that insert and delete. The total '
  'is the sum of the slots.';
comment on column invoice_counts.company_id is 'Company that is counted for.';
comment on column invoice_counts.slot is 'Number of the slot. Writers spread over several.';
comment on column invoice_counts.live is
  'Invoices inserted less those deleted through this slot. May be negative.';

create table list_counts (
  company_id bigint not null references companies,
  list text not null,
  slot smallint not null,
  live bigint not null,
  primary key (company_id, list, slot)
) with (fillfactor = 50);
call keep_companies_apart('list_counts');
grant select, insert, update on list_counts to einvoice_service;
grant select on list_counts to einvoice_reader;
comment on table list_counts is
  'Number of records in the other lists of each company, kept in slots as in invoice_counts.';
comment on column list_counts.company_id is 'Company that is counted for.';
comment on column list_counts.list is
  'Table that is counted: adjustment_notes, consolidated_invoices or einvoice_requests.';
comment on column list_counts.slot is 'Number of the slot. Writers spread over several.';
comment on column list_counts.live is
  'Records inserted less those deleted through this slot. May be negative.';
