-- Documents: invoices, adjustment notes and consolidated invoices. Their totals, and what searches
-- read.

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
call keep_apart('record_counts', 'select, insert, update');
call describe('record_counts', '
  Number of records that are not deleted, by status and type. Written by triggers. A total is the
  sum of its slots.

  list: Kind of the counted records: invoice, adjustment_note, consolidated_invoice,
    einvoice_request or submitted_document.
  status: Status of the counted records.
  type: Type of the counted records. Empty: they have no type.
  slot: Number of the slot. Concurrent transactions of a company write to different ones.
  live: Records added less those removed. May be negative.
');

-- A transaction writes to one slot, to which no other one writes until it ends. If it waited for a
-- slot of another one while it changes several records, the two could wait for each other.
create function count_record() returns trigger language plpgsql as $$
declare
  own_slot int := 0;
  of_list text := tg_argv[0];
  former_type text := '';
  present_type text := '';
begin
  if of_list is null then
    of_list := new.kind;
    former_type := old.type;
    present_type := new.type;
  end if;
  while own_slot < 100
        and not pg_try_advisory_xact_lock(hashint8(new.company_id), own_slot) loop
    own_slot := own_slot + 1;
  end loop;
  if own_slot = 100 then
    perform pg_advisory_xact_lock(hashint8(new.company_id), 100);
  end if;
  insert into record_counts as c (company_id, list, status, type, slot, live)
  select new.company_id, of_list, each.status, each.type, own_slot, each.change
    from (values (old.status, former_type, old.deleted_at, -1),
                 (new.status, present_type, new.deleted_at, 1))
         each (status, type, deleted_at, change)
   where each.status is not null and each.deleted_at is null
      on conflict (company_id, list, status, type, slot)
      do update set live = c.live + excluded.live;
  return null;
end $$;
comment on function count_record is
  'Count a record that is added, or whose status, type or deletion has changed. The argument is '
  'the name of its list; without one the kind of the record is, and the type is counted, too.';

create table metadata_entries (
  company_id bigint not null,
  list text not null,
  key text collate "C" not null,
  value text collate "C" not null,
  record_id bigint not null,
  primary key (company_id, list, key, value, record_id)
);
call keep_apart('metadata_entries', 'select, insert, delete');
call describe('metadata_entries', '
  Entries of the metadata of records, also of deleted ones, for searches. Written by triggers.

  list: Table of the record: documents or einvoice_requests.
  key: Key of the entry.
  value: Text of the entry.
  record_id: The record.
');

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

-- The words of buyers' names, so that a search by name need not read all buyers of a company. An
-- index for a search inside of words would have operators that row-level security does not allow.
create function search_text(name text) returns text
  immutable parallel safe language sql
  return trim(regexp_replace(
    lower(name),
    '[[:space:]!-/:-@[-`{-~\u2010-\u206f\u3000-\u303f'
      '\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]+',
    ' ', 'g'));
comment on function search_text is
  'A text as it is searched: in lower case, with single spaces in place of punctuation.';

create function add_document_parts() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into document_states (company_id, id, kind, type)
    values (new.company_id, new.id, new.kind, new.type);
  end if;
  if new.buyer_text is not null
     and not exists (select
                       from buyer_words
                      where company_id = new.company_id
                        and word = split_part(new.buyer_text, ' ', 1)
                        and buyer_text = new.buyer_text) then
    insert into buyer_words (company_id, word, buyer_text, invoice_id)
    select distinct new.company_id, word, new.buyer_text, new.id
      from string_to_table(new.buyer_text, ' ') word
     where word <> '';
  end if;
  return null;
end $$;
comment on function add_document_parts is
  'Add the state of an inserted document, a draft, and the words of a buyer that no invoice has '
  'had before. One trigger, since each costs a create 2 to 4 % of the time of PostgreSQL.';

create function copy_to_document_state() returns trigger language plpgsql as $$
begin
  update document_states
     set type = new.type, deleted_at = new.deleted_at, updated_at = clock_timestamp()
   where company_id = new.company_id and id = new.id;
  if new.deleted_at is distinct from old.deleted_at then
    update submitted_documents
       set deleted_at = new.deleted_at
     where company_id = new.company_id and document_id = new.id;
  end if;
  return null;
end $$;
comment on function copy_to_document_state is
  'Copy the type and the deletion of a document to its state and its submitted documents.';

create function check_kinds() returns trigger language plpgsql as $$
begin
  if exists (select
               from documents
              where company_id = new.company_id
                and id in (new.invoice_id, new.consolidated_invoice_id)
                and kind <> case id when new.invoice_id then 'invoice'
                                    else 'consolidated_invoice' end) then
    raise foreign_key_violation
      using message = 'a document refers to one of another kind', constraint = 'documents_kinds';
  end if;
  return null;
end $$;
comment on function check_kinds is
  'Reject a document whose invoice_id or consolidated_invoice_id is the id of another kind.';

-- Domains: PostgreSQL reads the checks of a table again for each statement.
create domain document_type as text
  constraint documents_type check
    (value in ('INVOICE', 'SELF_BILLED_INVOICE', 'PENDING_FINALIZE_INVOICE',
               'PENDING_FINALIZE_SELF_BILLED_INVOICE', 'CREDIT_NOTE', 'DEBIT_NOTE', 'REFUND_NOTE',
               'CONSOLIDATED_INVOICE', 'CONSOLIDATED_SELF_BILLED_INVOICE'));
comment on domain document_type is 'Type of a document.';
create domain document_status as text
  constraint documents_status check
    (value in ('Draft', 'Submitting', 'Submitted', 'Valid', 'Invalid', 'Cancelled'));
comment on domain document_status is 'Status of a document.';
create domain document_code as bigint
  constraint documents_code_range check (value between 1 and 999999999999);
comment on domain document_code is 'Number of a document without its prefix.';

-- The text is a part of the records and exports.
create domain optional_members as text
  constraint documents_optional_members check
    (value <> '' and not ('{' || value || '}')::jsonb ?| array[
       'id', 'company_id', 'is_submitted_to_portal', 'is_ready', 'invoice_code', 'code', 'type',
       'month', 'invoice_count', 'invoice_ids', 'invoice_id', 'buyer', 'supplier', 'line_items',
       'final_adjusted_amount', 'status', 'legal_monetary_total', 'issue_date', 'currency_code',
       'exchange_rate', 'created_at', 'updated_at', 'consolidated_invoice_id', 'reference',
       'metadata', 'last_submission', 'optional_members', 'record']);
comment on domain optional_members is
  'Members of the record of a document that no statement reads, as the text between the brackets '
  'of a JSON object: at least one, none of them a column of the record.';

-- In PL/pgSQL, so that each statement does not read the expression again.
create function has_columns_of_kind(
  kind text, type text, code_year smallint, invoice_id bigint, consolidated_invoice_id bigint,
  month date, invoice_ids bigint[]
) returns boolean immutable parallel safe language plpgsql as $$
begin
  return case kind
         when 'invoice'
         then type not like '%NOTE' and type not like 'CONSOLIDATED%'
              and code_year is not null and num_nonnulls(invoice_id, month, invoice_ids) = 0
         when 'adjustment_note'
         then type like '%NOTE' and num_nonnulls(invoice_id, consolidated_invoice_id) = 1
              and num_nonnulls(code_year, month, invoice_ids) = 0
         when 'consolidated_invoice'
         then type like 'CONSOLIDATED%' and num_nonnulls(code_year, month, invoice_ids) = 3
              and num_nonnulls(invoice_id, consolidated_invoice_id) = 0
         else false
         end;
end $$;
comment on function has_columns_of_kind is
  'Whether a document has a type and the columns of its kind: an invoice may be in a consolidated '
  'invoice, a note adjusts one document, and a consolidated invoice has a month and invoices.';

-- No column is generated: PostgreSQL would read its expression again for each statement.
create table documents (
  company_id bigint not null,
  id bigint generated always as identity,
  kind text not null,
  type document_type not null,
  code document_code not null,
  code_year smallint,
  invoice_id bigint,
  consolidated_invoice_id bigint,
  month date,
  invoice_ids bigint[],
  is_ready boolean not null default false,
  issue_date timestamptz not null,
  buyer json,
  buyer_text text collate "C",
  supplier json,
  line_items json not null,
  currency_code text not null default 'MYR',
  exchange_rate numeric,
  reference text,
  metadata json,
  optional_members optional_members not null,
  net_amount numeric(20, 2) not null,
  excluding_tax numeric(20, 2) not null,
  including_tax numeric(20, 2) not null,
  payable_amount numeric(20, 2) not null,
  prepaid_amount numeric(20, 2) not null default 0,
  taxes jsonb not null default '[]',
  bytes int not null,
  created_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  primary key (company_id, id),
  constraint documents_invoice foreign key (company_id, invoice_id)
    references documents (company_id, id),
  constraint documents_consolidated_invoice foreign key (company_id, consolidated_invoice_id)
    references documents (company_id, id),
  constraint documents_columns_by_kind check
    (has_columns_of_kind(
      kind, type, code_year, invoice_id, consolidated_invoice_id, month, invoice_ids))
);
-- The code comes first, so that lists are sorted by code with these indexes, too.
create unique index invoices_code_once_a_year on documents (company_id, code, code_year)
  where kind = 'invoice' and deleted_at is null;
create unique index consolidated_invoices_code_once_a_year
  on documents (company_id, code, code_year)
  where kind = 'consolidated_invoice' and deleted_at is null;
create unique index adjustment_notes_code_once_a_type on documents (company_id, code, type)
  where kind = 'adjustment_note' and deleted_at is null;
create unique index invoices_reference_once on documents (company_id, reference)
  where kind = 'invoice' and reference is not null and deleted_at is null;
create unique index adjustment_notes_reference_once on documents (company_id, reference)
  where kind = 'adjustment_note' and reference is not null and deleted_at is null;
-- Pages and filters of lists.
create index documents_live on documents (company_id, kind, id) where deleted_at is null;
create index documents_by_issue_date on documents (company_id, kind, issue_date, id)
  where deleted_at is null;
-- The invoices with a buyer that a search has found.
create index documents_by_buyer on documents (company_id, buyer_text) where buyer_text is not null;
-- The notes to an invoice.
create index documents_by_invoice on documents (company_id, invoice_id)
  where invoice_id is not null;
-- The invoices in a consolidated invoice, and the notes to it.
create index documents_by_consolidated_invoice on documents (company_id, consolidated_invoice_id)
  where consolidated_invoice_id is not null;
call keep_apart('documents', 'select, insert, update');
create trigger metadata_inserted after insert on documents for each row
  when (new.metadata is not null) execute function replace_metadata_entries();
create trigger metadata_changed after update on documents for each row
  when (old.metadata::text is distinct from new.metadata::text)
  execute function replace_metadata_entries();
create trigger add_parts after insert or update of buyer_text on documents for each row
  execute function add_document_parts();
create trigger copy_to_state after update on documents for each row
  when ((old.type, old.deleted_at) is distinct from (new.type, new.deleted_at))
  execute function copy_to_document_state();
create trigger check_kinds after insert or update of invoice_id, consolidated_invoice_id
  on documents for each row
  when (new.invoice_id is not null or new.consolidated_invoice_id is not null)
  execute function check_kinds();
call describe('documents', '
  Invoices, adjustment notes and consolidated invoices, without their state. Written by the API.

  company_id: Company that issues it, or receives a self-billed one. Row-level security admits
    only rows of the company of the key, which exists: the check of a foreign key would lock its
    row.
  kind: invoice, adjustment_note or consolidated_invoice.
  type: INVOICE, SELF_BILLED_INVOICE, one of these that is not final yet (PENDING_FINALIZE_...),
    CREDIT_NOTE, DEBIT_NOTE, REFUND_NOTE, CONSOLIDATED_INVOICE or
    CONSOLIDATED_SELF_BILLED_INVOICE.
  code: Number without prefix. Among those that are not deleted, unique for each type of note, and
    for each kind of invoice in a year.
  code_year: Year of issue in the business time zone. Null for notes.
  invoice_id: Invoice that a note adjusts. Null for other documents, and if it adjusts a
    consolidated invoice.
  consolidated_invoice_id: Consolidated invoice that a note adjusts, or that includes the invoice
    now. Null: none.
  month: First day of the month of the sales of a consolidated invoice. Null for other documents.
  invoice_ids: Invoices that a consolidated invoice was made of. Stays when a cancellation
    releases them. Null for other documents.
  is_ready: Whether the client marked the invoice as ready to be submitted.
  issue_date: When it is issued.
  buyer: Buyer of an invoice as the API shows it. Null for self-billed invoices, while not known,
    and for other documents.
  buyer_text: Name and TIN of the buyer as searches compare them, by search_text. Null without a
    buyer.
  supplier: Supplier of a self-billed invoice as the API shows it. Null for other documents.
  line_items: Line items as the API shows them.
  currency_code: Currency of all amounts, ISO 4217. Notes have that of the document which they
    adjust instead.
  exchange_rate: MYR for one unit of the currency. Null: not given.
  reference: Reference that the client chose, unique among the invoices or notes of the company
    that are not deleted. Null: none.
  metadata: Texts of the client by key. Null: none.
  optional_members: The optional members of the record that have no column, as the text between the
    brackets of a JSON object.
  net_amount: Sum of the line items after allowances and charges.
  excluding_tax: Total without tax.
  including_tax: Total with tax.
  payable_amount: Amount to pay, or of the adjustment. The value, which notes adjust, includes
    prepaid_amount.
  prepaid_amount: Amount of the prepayment, rounded. The amount to pay is smaller by it.
  taxes: Taxes by type and percentage: [{type, rate, taxable, tax}] in the currency of the
    document. rate is null for an amount per unit.
  bytes: Bytes of the request body as compact JSON.
  deleted_at: When it was deleted. The row stays and its code is free again. Null: not deleted.
');

-- A change of a status writes this row and its few indexes, and not the document.
create table document_states (
  company_id bigint not null,
  id bigint not null,
  kind text not null,
  type document_type not null,
  status document_status not null default 'Draft',
  adjusted_by numeric(24, 2) not null default 0,
  attempts int not null default 0,
  is_changed boolean not null default false,
  failed_outcome json,
  outcome_at timestamptz,
  updated_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  primary key (company_id, id),
  constraint documents_only_unlocked_deleted check
    (deleted_at is null or status in ('Draft', 'Invalid', 'Cancelled'))
);
create index documents_by_status on document_states (company_id, kind, status, id)
  where deleted_at is null;
create index documents_by_update on document_states (company_id, kind, updated_at, id)
  where deleted_at is null;
-- For the overview.
create index documents_failed on document_states (company_id, outcome_at)
  where failed_outcome is not null and deleted_at is null;
call keep_apart('document_states', 'select, insert, update');
create trigger counted_inserted after insert on document_states for each row
  execute function count_record();
create trigger counted_changed after update on document_states for each row
  when ((old.status, old.type, old.deleted_at)
        is distinct from (new.status, new.type, new.deleted_at))
  execute function count_record();
call describe('document_states', '
  State of each document, written with it and by the submission flow. Locked with the document.

  company_id: Company of the document. The trigger that adds the row needs no foreign key.
  id: The document.
  kind: Kind of the document.
  type: Type of the document. Written by a trigger.
  status: Draft, Submitting, Submitted, Valid, Invalid or Cancelled.
  adjusted_by: Valid debit notes less valid credit and refund notes.
  attempts: Submissions so far.
  is_changed: Whether an update has changed it since its last submission.
  failed_outcome: Outcome of the latest submission as the API shows it, if the portal did not accept
    the document or nothing reached it. Null: it is accepted or under way, or there is none.
  outcome_at: When the latest submission came to its outcome. Null: there is none.
  updated_at: When the document or its state was last changed.
  deleted_at: When the document was deleted. Null: not deleted. Written by a trigger.
');

-- Transactions that add the same buyer at once add a row each, so that none waits for another.
create table buyer_words (
  company_id bigint not null,
  word text collate "C" not null,
  buyer_text text collate "C" not null,
  invoice_id bigint not null,
  primary key (company_id, word, buyer_text, invoice_id)
);
call keep_apart('buyer_words', 'select, insert');
call describe('buyer_words', '
  Words of the names of buyers and their TINs, also of those that no invoice has any more. Written
  by a trigger.

  word: A word of the text.
  buyer_text: A text of documents.buyer_text.
  invoice_id: The first invoice with the text.
');

create table code_lists (
  code_list text not null,
  code text not null,
  description text not null,
  valid_from date not null,
  valid_to date not null default 'infinity',
  imported_at timestamptz not null default clock_timestamp(),
  primary key (code_list, code),
  constraint code_lists_valid_to_after_valid_from check (valid_to >= valid_from)
);
grant select, insert, update, delete on code_lists to einvoice_service;
grant select on code_lists to einvoice_reader;
call describe('code_lists', '
  Code lists that the authority publishes, the same for all companies. Written by the command
  import-codes.

  code_list: Name of the list.
  code: Code.
  description: Meaning of the code.
  valid_from: First day on which the code is valid. -infinity: from its first list on, as far as
    is known.
  valid_to: Last day on which the code is valid. infinity: it has no known end.
  imported_at: When the code was imported last. That of the list is the latest of its codes.
');
