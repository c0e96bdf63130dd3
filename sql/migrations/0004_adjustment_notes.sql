-- Credit, debit and refund notes.

create table adjustment_notes (
  company_id bigint not null references companies,
  id bigint generated always as identity,
  invoice_id bigint,
  consolidated_invoice_id bigint,
  code bigint not null,
  type text not null,
  status text not null default 'Draft',
  issue_date timestamptz not null,
  line_items jsonb not null,
  net_amount numeric(20, 2) not null,
  excluding_tax numeric(20, 2) not null,
  including_tax numeric(20, 2) not null,
  payable_amount numeric(20, 2) not null,
  attempts int not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  payment jsonb,
  delivery jsonb,
  billing_period jsonb,
  document_references jsonb,
  primary key (company_id, id),
  foreign key (company_id, invoice_id) references invoices (company_id, id),
  constraint adjustment_notes_consolidated_invoice
    foreign key (company_id, consolidated_invoice_id)
    references consolidated_invoices (company_id, id),
  constraint adjustment_notes_one_target check
    (num_nonnulls(invoice_id, consolidated_invoice_id) = 1),
  constraint adjustment_notes_code_range check (code between 1 and 999999999999),
  constraint adjustment_notes_type check (type in ('CREDIT_NOTE', 'DEBIT_NOTE', 'REFUND_NOTE')),
  constraint adjustment_notes_status check
    (status in ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled')),
  constraint adjustment_notes_only_unsent_deleted check
    (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create unique index adjustment_notes_code_once_a_type on adjustment_notes (company_id, type, code)
  where deleted_at is null;
create index adjustment_notes_by_id on adjustment_notes (company_id, id)
  where deleted_at is null;
create index adjustment_notes_by_invoice on adjustment_notes (company_id, invoice_id)
  where deleted_at is null;
create index adjustment_notes_by_consolidated_invoice
  on adjustment_notes (company_id, consolidated_invoice_id)
  where consolidated_invoice_id is not null and deleted_at is null;
create index adjustment_notes_by_status on adjustment_notes (company_id, status, id)
  where deleted_at is null;
create index adjustment_notes_by_issue_date on adjustment_notes (company_id, issue_date, id)
  where deleted_at is null;
call keep_companies_apart('adjustment_notes');
grant select, insert, update on adjustment_notes to einvoice_service;
grant select on adjustment_notes to einvoice_reader;
comment on table adjustment_notes is
  'Credit, debit and refund notes to an invoice or a consolidated invoice.';
comment on column adjustment_notes.company_id is 'Company that issues it.';
comment on column adjustment_notes.id is 'Identifies the note.';
comment on column adjustment_notes.invoice_id is
  'Invoice that is adjusted. Null when a consolidated invoice is.';
comment on column adjustment_notes.consolidated_invoice_id is
  'Consolidated invoice that is adjusted. Null when an invoice is.';
comment on column adjustment_notes.code is
  'Number without prefix, unique for each type among those that are not deleted.';
comment on column adjustment_notes.type is 'CREDIT_NOTE, DEBIT_NOTE or REFUND_NOTE.';
comment on column adjustment_notes.status is
  'Draft, Submitting, Submitted, Valid, Invalid or Cancelled.';
comment on column adjustment_notes.issue_date is 'When it is issued.';
comment on column adjustment_notes.line_items is 'Line items as the API shows them.';
comment on column adjustment_notes.net_amount is
  'Sum of the line items after allowances and charges, in the invoice''s currency.';
comment on column adjustment_notes.excluding_tax is
  'Total without tax, in the invoice''s currency.';
comment on column adjustment_notes.including_tax is 'Total with tax, in the invoice''s currency.';
comment on column adjustment_notes.payable_amount is
  'Amount of the adjustment, in the invoice''s currency.';
comment on column adjustment_notes.attempts is 'Submissions so far.';
comment on column adjustment_notes.created_at is 'When it was created.';
comment on column adjustment_notes.updated_at is 'When the row was last changed.';
comment on column adjustment_notes.deleted_at is
  'When it was deleted. The row stays and its code is free again. Null: not deleted.';
comment on column adjustment_notes.payment is
  'Terms and means of payment as the API shows them. Null: none.';
comment on column adjustment_notes.delivery is 'Delivery as the API shows it. Null: none.';
comment on column adjustment_notes.billing_period is
  'Period that is billed, as the API shows it. Null: none.';
comment on column adjustment_notes.document_references is
  'References to other documents, as the API shows them. Null: none.';
