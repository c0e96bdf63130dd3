-- Consolidated invoices: one document for the sales of a month whose buyers asked for none. Portal: 13

create table consolidated_invoices (
  company_id     bigint not null references companies,
  id             bigint generated always as identity,
  code           bigint not null,
  code_year      smallint not null,
  type           text not null,
  status         text not null default 'Draft',
  issue_date     timestamptz not null,
  month          date not null,  -- its first day; the sales are all of this month
  line_items     jsonb not null,
  net_amount     numeric(20, 2) not null,
  excluding_tax  numeric(20, 2) not null,
  including_tax  numeric(20, 2) not null,
  payable_amount numeric(20, 2) not null,
  adjusted_by    numeric(20, 2) not null default 0,
  attempts       int not null default 0,
  created_at     timestamptz not null default clock_timestamp(),
  updated_at     timestamptz not null default clock_timestamp(),
  deleted_at     timestamptz,
  primary key (company_id, id),
  constraint consolidated_invoices_code_range check (code between 1 and 999999999999),
  constraint consolidated_invoices_type check (type in ('CONSOLIDATED_INVOICE', 'CONSOLIDATED_SELF_BILLED_INVOICE')),
  constraint consolidated_invoices_status check (status in
    ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled')),
  constraint consolidated_invoices_only_unsent_deleted check (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create unique index consolidated_invoices_code_once_a_year on consolidated_invoices (company_id, code_year, code)
  where deleted_at is null;
create index consolidated_invoices_by_id on consolidated_invoices (company_id, id) where deleted_at is null;
call keep_companies_apart('consolidated_invoices');
grant select, insert, update on consolidated_invoices to einvoice_service;

-- The live consolidated invoice that an invoice is in.
alter table invoices add column consolidated_invoice_id bigint;
alter table invoices add constraint invoices_consolidated_in
  foreign key (company_id, consolidated_invoice_id) references consolidated_invoices (company_id, id);
create index invoices_by_consolidated_invoice on invoices (company_id, consolidated_invoice_id)
  where consolidated_invoice_id is not null;

alter table adjustment_notes add constraint adjustment_notes_consolidated_invoice
  foreign key (company_id, consolidated_invoice_id) references consolidated_invoices (company_id, id);
create index adjustment_notes_by_id on adjustment_notes (company_id, id) where deleted_at is null;
create index adjustment_notes_by_consolidated_invoice on adjustment_notes (company_id, consolidated_invoice_id)
  where consolidated_invoice_id is not null and deleted_at is null;

alter table submitted_documents add constraint submitted_documents_consolidated_invoice
  foreign key (company_id, consolidated_invoice_id) references consolidated_invoices (company_id, id);
create unique index submitted_documents_one_live_per_consolidated_invoice
  on submitted_documents (company_id, consolidated_invoice_id) where status in ('Submitting', 'Submitted', 'Valid');
create index submitted_documents_by_note on submitted_documents (company_id, adjustment_note_id, id)
  where adjustment_note_id is not null;
create index submitted_documents_by_consolidated_invoice on submitted_documents (company_id, consolidated_invoice_id, id)
  where consolidated_invoice_id is not null;

-- What a submitted document is of: the first part of its events' types, and the ids in their data.
create function document_subject(invoice_id bigint, adjustment_note_id bigint, consolidated_invoice_id bigint) returns text
  immutable parallel safe language sql
  return case when invoice_id is not null then 'invoice'
              when adjustment_note_id is not null then 'adjustment_note'
              else 'consolidated_invoice' end;

create function subject_ids(invoice_id bigint, adjustment_note_id bigint, consolidated_invoice_id bigint) returns jsonb
  immutable parallel safe language sql
  return jsonb_strip_nulls(jsonb_build_object(
    'invoice_id', invoice_id, 'adjustment_note_id', adjustment_note_id,
    'consolidated_invoice_id', consolidated_invoice_id));
