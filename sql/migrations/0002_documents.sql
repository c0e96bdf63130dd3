-- Totals of lists, also of those that are filtered by status and type. Triggers keep them, so that
-- no statement can forget to.
create table record_counts (
  company_id bigint not null,
  list text not null,
  status text not null,
  type text not null,
  slot smallint not null,
  live bigint not null,
  primary key (company_id, list, status, type, slot)
) with (fillfactor = 50);
call keep_companies_apart('record_counts');
grant select, insert, update on record_counts to einvoice_service;
grant select on record_counts to einvoice_reader;
comment on table record_counts is
  'Number of records that are not deleted, by status and type. Written by triggers. A total is the '
  'sum of its slots.';
comment on column record_counts.company_id is 'Company that is counted for.';
comment on column record_counts.list is
  'Table that is counted: invoices, adjustment_notes, consolidated_invoices, einvoice_requests or '
  'submitted_documents.';
comment on column record_counts.status is 'Status of the counted records.';
comment on column record_counts.type is 'Type of the counted records. Empty: they have no type.';
comment on column record_counts.slot is
  'Number of the slot. Concurrent transactions of a company write to different ones.';
comment on column record_counts.live is 'Records added less those removed. May be negative.';
-- A transaction writes to one slot. If it waited for a slot of another one while it changes several
-- records, the two could wait for each other.
create function own_count_slot(company_id bigint) returns smallint
  language plpgsql as $$
begin
  for slot in 0 .. 99 loop
    if pg_try_advisory_xact_lock(hashint8(company_id), slot) then
      return slot;
    end if;
  end loop;
  perform pg_advisory_xact_lock(hashint8(company_id), 100);
  return 100;
end $$;
comment on function own_count_slot is
  'A slot of record_counts that no other transaction writes to until this one ends.';
create procedure keep_counts(counted regclass, type_column text) language plpgsql as $$
begin
  execute format($f$
    create function count_%1$s_inserted() returns trigger language plpgsql as $body$
    begin
      insert into record_counts as c (company_id, list, status, type, slot, live)
      select company_id, '%1$s', status, type, own_count_slot(company_id), count(*)
        from (select company_id, status, %2$s as type
                from inserted
               where deleted_at is null) record
       group by company_id, status, type
          on conflict (company_id, list, status, type, slot)
          do update set live = c.live + excluded.live;
      return null;
    end $body$
    $f$, counted, type_column);
  execute format($f$
    create function count_%1$s_changed() returns trigger language plpgsql as $body$
    begin
      insert into record_counts as c (company_id, list, status, type, slot, live)
      select company_id, '%1$s', status, %2$s, own_count_slot(company_id), change
        from (select old.*, -1 as change
              union all
              select new.*, 1) record
       where deleted_at is null
          on conflict (company_id, list, status, type, slot)
          do update set live = c.live + excluded.live;
      return null;
    end $body$
    $f$, counted, type_column);
  execute format(
    'comment on function count_%1$s_inserted is ''Count inserted records in record_counts.''',
    counted);
  execute format(
    'comment on function count_%1$s_changed is '
    '''Count a record whose status, type or deletion has changed in record_counts.''',
    counted);
  execute format(
    'create trigger counted_inserted after insert on %1$s'
    ' referencing new table as inserted'
    ' for each statement execute function count_%1$s_inserted()',
    counted);
  execute format(
    'create trigger counted_changed after update on %1$s'
    ' for each row'
    ' when ((old.status, %2$s, old.deleted_at) is distinct from (new.status, %3$s, new.deleted_at))'
    ' execute function count_%1$s_changed()',
    counted,
    case when type_column = '''''' then type_column else 'old.' || type_column end,
    case when type_column = '''''' then type_column else 'new.' || type_column end);
  execute format(
    'insert into record_counts (company_id, list, status, type, slot, live)'
    ' select company_id, ''%1$s'', status, type, 0, count(*)'
    ' from (select company_id, status, %2$s as type from %1$s where deleted_at is null) record'
    ' group by company_id, status, type',
    counted, type_column);
end $$;
comment on procedure keep_counts is
  'Count the records of a table in record_counts, from now on by triggers. `type_column` is the '
  'column of the type, or an empty text in quotes.';
create table metadata_entries (
  company_id bigint not null,
  list text not null,
  key text collate "C" not null,
  value text collate "C" not null,
  record_id bigint not null,
  primary key (company_id, list, key, value, record_id)
);
call keep_companies_apart('metadata_entries');
grant select, insert, delete on metadata_entries to einvoice_service;
grant select on metadata_entries to einvoice_reader;
comment on table metadata_entries is
  'Entries of the metadata of records, also of deleted ones, for searches. Written by triggers.';
comment on column metadata_entries.company_id is 'Company of the record.';
comment on column metadata_entries.list is
  'Table of the record: invoices, adjustment_notes or einvoice_requests.';
comment on column metadata_entries.key is 'Key of the entry.';
comment on column metadata_entries.value is 'Text of the entry.';
comment on column metadata_entries.record_id is 'The record.';
create function replace_metadata_entries() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.metadata is not null then
    delete from metadata_entries e
     using json_each_text(old.metadata) former
     where e.company_id = new.company_id and e.list = tg_table_name
       and e.key = former.key and e.value = former.value and e.record_id = new.id;
  end if;
  insert into metadata_entries (company_id, list, key, value, record_id)
  select new.company_id, tg_table_name, key, value, new.id
    from json_each_text(new.metadata);
  return null;
end $$;
comment on function replace_metadata_entries is
  'Replace the entries of a record whose metadata has changed.';
create procedure keep_metadata_entries(described regclass) language plpgsql as $$
begin
  execute format(
    'create trigger metadata_inserted after insert on %1$s for each row'
    ' when (new.metadata is not null) execute function replace_metadata_entries()',
    described);
  execute format(
    'create trigger metadata_changed after update on %1$s for each row'
    ' when (old.metadata::text is distinct from new.metadata::text)'
    ' execute function replace_metadata_entries()',
    described);
end $$;
comment on procedure keep_metadata_entries is
  'Keep the metadata of a table in metadata_entries, from now on by triggers.';
-- The words of buyers' names, so that a search by name need not read all invoices of a company. An
-- index for a search inside of words would have operators that row-level security does not allow.
create function search_text(name text) returns text
  immutable parallel safe language sql
  return trim(regexp_replace(lower(name), '[[:space:]!-/:-@[-`{-~]+', ' ', 'g'));
comment on function search_text is
  'A text as it is searched: in lower case, with single spaces in place of punctuation.';
create function add_invoice_words() returns trigger language plpgsql as $$
begin
  insert into invoice_words (company_id, word, invoice_id)
  select distinct company_id, word, id
    from inserted
   cross join lateral regexp_split_to_table(search_text(buyer ->> 'name'), ' ') word
   where word <> '';
  return null;
end $$;
comment on function add_invoice_words is 'Add the words of inserted invoices to invoice_words.';
create function replace_invoice_words() returns trigger language plpgsql as $$
begin
  delete from invoice_words where company_id = new.company_id and invoice_id = new.id
     and word = any (string_to_array(search_text(old.buyer ->> 'name'), ' '));
  insert into invoice_words (company_id, word, invoice_id)
  select distinct new.company_id, word, new.id
    from regexp_split_to_table(search_text(new.buyer ->> 'name'), ' ') word
   where word <> '';
  return null;
end $$;
comment on function replace_invoice_words is
  'Replace the words of an invoice whose buyer''s name has changed.';
create function mark_deleted_documents() returns trigger language plpgsql as $$
begin
  if tg_table_name = 'invoices' then
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and invoice_id = new.id;
  elsif tg_table_name = 'adjustment_notes' then
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and adjustment_note_id = new.id;
  else
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and consolidated_invoice_id = new.id;
  end if;
  return null;
end $$;
comment on function mark_deleted_documents is
  'Note in the submitted documents of a record that it was deleted.';
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
  line_items json not null,
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
  invoice_level_allowance_charge json,
  bytes int not null generated always as (
  octet_length(line_items::text)
  + coalesce(octet_length(invoice_level_allowance_charge::text), 0)
) stored,
  taxes jsonb,
  prepayment json,
  prepaid_amount numeric(20, 2) not null default 0,
  payable_rounding_amount numeric(20, 2),
  not_sent json,
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
call keep_counts('consolidated_invoices', 'type');
create trigger submitted_deleted after update on consolidated_invoices for each row
  when (old.deleted_at is distinct from new.deleted_at)
  execute function mark_deleted_documents();
create index consolidated_invoices_not_sent on consolidated_invoices (company_id, id)
  where not_sent is not null;
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
comment on column consolidated_invoices.bytes is 'Bytes of its JSON columns as text.';
comment on column consolidated_invoices.taxes is
  'Taxes by type and percentage: [{type, rate, taxable, tax}] in MYR. '
  'rate is null for an amount per unit. Null: stored by an older version.';
comment on column consolidated_invoices.prepayment is
  'Sum of the prepayments of its invoices, as the API shows it. Null: none.';
comment on column consolidated_invoices.prepaid_amount is
  'Amount of the prepayments. The amount to pay is smaller by it.';
comment on column consolidated_invoices.payable_rounding_amount is
  'Sum of the roundings of its invoices. Null: none.';
comment on column consolidated_invoices.not_sent is
  'Outcome of the latest submission as the API shows it, if nothing reached the portal. Null: it '
  'did, or is under way, or there is none.';

-- Invoices, and the counts of the lists.
create table invoices (
  company_id bigint not null,
  id bigint generated always as identity,
  code bigint not null,
  code_year smallint not null,
  type text not null,
  status text not null default 'Draft',
  is_ready boolean not null default false,
  issue_date timestamptz not null,
  buyer json,
  supplier json,
  line_items json not null,
  invoice_level_allowance_charge json,
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
  payment json,
  delivery json,
  billing_period json,
  document_references json,
  bytes int not null generated always as (
  coalesce(octet_length(buyer::text), 0)
  + coalesce(octet_length(supplier::text), 0)
  + octet_length(line_items::text)
  + coalesce(octet_length(invoice_level_allowance_charge::text), 0)
  + coalesce(octet_length(payment::text), 0)
  + coalesce(octet_length(delivery::text), 0)
  + coalesce(octet_length(billing_period::text), 0)
  + coalesce(octet_length(document_references::text), 0)
) stored,
  taxes jsonb,
  is_changed boolean not null default false,
  reference text,
  metadata json,
  prepayment json,
  prepaid_amount numeric(20, 2) not null default 0,
  payable_rounding_amount numeric(20, 2),
  not_sent json,
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
-- Row-level security admits only rows of the company of the API key, which exists. The check of a
-- foreign key would lock the row of the company for each invoice.
call keep_counts('invoices', 'type');
create trigger add_invoice_words after insert on invoices referencing new table as inserted
  for each statement execute function add_invoice_words();
create trigger replace_invoice_words after update on invoices for each row
  when (old.buyer ->> 'name' is distinct from new.buyer ->> 'name')
  execute function replace_invoice_words();
-- The taxes of each document by type and rate, computed when it is stored, so that the taxes of a
-- month are a sum over its documents.
-- A cancelled invoice or note is sent again only if it was changed, or if the client insists: a
-- late repetition of a request must not issue a second document.
-- References and metadata of clients: stored and returned with a record, never sent to the portal.
create unique index invoices_reference_once on invoices (company_id, reference)
  where reference is not null and deleted_at is null;
create index invoices_by_update on invoices (company_id, updated_at, id) where deleted_at is null;
call keep_metadata_entries('invoices');
-- What was paid before a document was issued, and the rounding of the amount to pay. The value of a
-- document, which notes adjust, is payable_amount + prepaid_amount.
create trigger submitted_deleted after update on invoices for each row
  when (old.deleted_at is distinct from new.deleted_at)
  execute function mark_deleted_documents();
-- Submissions of which nothing reached the portal have a status of their own, and are the last
-- submission of their record even if no document was stored for them. Earlier versions do not know
-- the status, so that none of them may run after this migration.
-- For the overview.
create index invoices_not_sent on invoices (company_id, id) where not_sent is not null;
-- Sales that are in no consolidated invoice, of which the overview looks for the oldest.
create index invoices_unconsolidated on invoices (company_id, issue_date)
  where consolidated_invoice_id is null
    and status in ('Draft', 'Invalid')
    and deleted_at is null;
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
comment on column invoices.bytes is 'Bytes of its JSON columns as text.';
comment on column invoices.taxes is
  'Taxes by type and percentage: [{type, rate, taxable, tax}] in the currency of the document. '
  'rate is null for an amount per unit. Null: stored by an older version.';
comment on column invoices.is_changed is
  'Whether it was updated since its last submission. False before the first one.';
comment on column invoices.reference is
  'Reference that the client chose, unique among the invoices of the company that are not deleted. '
  'Null: none.';
comment on column invoices.metadata is 'Texts of the client by key. Null: none.';
comment on column invoices.prepayment is
  'Payment before the issue, as the API shows it. Null: none.';
comment on column invoices.prepaid_amount is
  'Amount of the prepayment, rounded. The amount to pay is smaller by it.';
comment on column invoices.payable_rounding_amount is
  'Rounding that is part of the amount to pay. Null: none.';
comment on column invoices.not_sent is
  'Outcome of the latest submission as the API shows it, if nothing reached the portal. Null: it '
  'did, or is under way, or there is none.';

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
  line_items json not null,
  net_amount numeric(20, 2) not null,
  excluding_tax numeric(20, 2) not null,
  including_tax numeric(20, 2) not null,
  payable_amount numeric(20, 2) not null,
  attempts int not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  payment json,
  delivery json,
  billing_period json,
  document_references json,
  bytes int not null generated always as (
  octet_length(line_items::text)
  + coalesce(octet_length(payment::text), 0)
  + coalesce(octet_length(delivery::text), 0)
  + coalesce(octet_length(billing_period::text), 0)
  + coalesce(octet_length(document_references::text), 0)
) stored,
  taxes jsonb,
  is_changed boolean not null default false,
  reference text,
  metadata json,
  prepayment json,
  prepaid_amount numeric(20, 2) not null default 0,
  payable_rounding_amount numeric(20, 2),
  not_sent json,
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
call keep_counts('adjustment_notes', 'type');
create unique index adjustment_notes_reference_once on adjustment_notes (company_id, reference)
  where reference is not null and deleted_at is null;
create index adjustment_notes_by_update on adjustment_notes (company_id, updated_at, id)
  where deleted_at is null;
call keep_metadata_entries('adjustment_notes');
create trigger submitted_deleted after update on adjustment_notes for each row
  when (old.deleted_at is distinct from new.deleted_at)
  execute function mark_deleted_documents();
create index adjustment_notes_not_sent on adjustment_notes (company_id, id)
  where not_sent is not null;
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
comment on column adjustment_notes.bytes is 'Bytes of its JSON columns as text.';
comment on column adjustment_notes.taxes is
  'Taxes by type and percentage: [{type, rate, taxable, tax}] in the currency of the document. '
  'rate is null for an amount per unit. Null: stored by an older version.';
comment on column adjustment_notes.is_changed is
  'Whether it was updated since its last submission. False before the first one.';
comment on column adjustment_notes.reference is
  'Reference that the client chose, unique among the notes of the company that are not deleted. '
  'Null: none.';
comment on column adjustment_notes.metadata is 'Texts of the client by key. Null: none.';
comment on column adjustment_notes.prepayment is
  'Payment before the issue, as the API shows it. Null: none.';
comment on column adjustment_notes.prepaid_amount is
  'Amount of the prepayment, rounded. The amount to pay is smaller by it.';
comment on column adjustment_notes.payable_rounding_amount is
  'Rounding that is part of the amount to pay. Null: none.';
comment on column adjustment_notes.not_sent is
  'Outcome of the latest submission as the API shows it, if nothing reached the portal. Null: it '
  'did, or is under way, or there is none.';

create table invoice_words (
  company_id bigint not null,
  word text collate "C" not null,
  invoice_id bigint not null,
  primary key (company_id, word, invoice_id)
);
call keep_companies_apart('invoice_words');
grant select, insert, delete on invoice_words to einvoice_service;
grant select on invoice_words to einvoice_reader;
comment on table invoice_words is
  'Words of the buyers'' names of invoices, also of deleted ones. Written by triggers.';
comment on column invoice_words.company_id is 'Company of the invoice.';
comment on column invoice_words.word is 'A word of search_text of the name.';
comment on column invoice_words.invoice_id is 'The invoice.';

create table code_lists (
  code_list text not null,
  code text not null,
  description text not null,
  valid_from date not null,
  valid_to date not null default 'infinity',
  primary key (code_list, code),
  constraint code_lists_valid_to_after_valid_from check (valid_to >= valid_from)
);
grant select, insert, update, delete on code_lists to einvoice_service;
grant select on code_lists to einvoice_reader;
-- Imported code lists: codes with an end, and the imports, by which running processes recognise a
-- newer list.
comment on table code_lists is
  'Code lists that the authority publishes, the same for all companies. Written by the command '
  'import-codes.';
comment on column code_lists.code_list is 'Name of the list.';
comment on column code_lists.code is 'Code.';
comment on column code_lists.description is 'Meaning of the code.';
comment on column code_lists.valid_from is
  'First day on which the code is valid. -infinity: from its first list on, as far as is known.';
comment on column code_lists.valid_to is
  'Last day on which the code is valid. infinity: it has no known end.';

create table code_list_imports (
  code_list text primary key,
  number bigint not null,
  imported_at timestamptz not null
);
grant select, insert, update, delete on code_list_imports to einvoice_service;
grant select on code_list_imports to einvoice_reader;
comment on table code_list_imports is
  'The latest import of each code list, the same for all companies. Written with the codes.';
comment on column code_list_imports.code_list is 'Name of the list.';
comment on column code_list_imports.number is 'Number of imports of the list.';
comment on column code_list_imports.imported_at is 'When the list was imported last.';
