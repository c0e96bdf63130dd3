-- Imported code lists: codes with an end, and the imports, by which running processes recognise a
-- newer list.

alter table code_lists
  add column valid_to date not null default 'infinity',
  add constraint code_lists_valid_to_after_valid_from check (valid_to >= valid_from);
comment on column code_lists.valid_from is
  'First day on which the code is valid. -infinity: from its first list on, as far as is known.';
comment on column code_lists.valid_to is
  'Last day on which the code is valid. infinity: it has no known end.';
-- The codes of the first list have been valid before its import.
update code_lists
   set valid_from = '-infinity'
  from (select code_list, min(valid_from) as day from code_lists group by code_list) first
 where code_lists.code_list = first.code_list and code_lists.valid_from = first.day;

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
insert into code_list_imports (code_list, number, imported_at)
select code_list, 1, now()
  from code_lists
 group by code_list;

-- What was paid before a document was issued, and the rounding of the amount to pay. The value of a
-- document, which notes adjust, is payable_amount + prepaid_amount.

alter table invoices
  add column prepayment json,
  add column prepaid_amount numeric(20, 2) not null default 0,
  add column payable_rounding_amount numeric(20, 2);
alter table adjustment_notes
  add column prepayment json,
  add column prepaid_amount numeric(20, 2) not null default 0,
  add column payable_rounding_amount numeric(20, 2);
alter table consolidated_invoices
  add column prepayment json,
  add column prepaid_amount numeric(20, 2) not null default 0,
  add column payable_rounding_amount numeric(20, 2);
comment on column invoices.prepayment is
  'Payment before the issue, as the API shows it. Null: none.';
comment on column invoices.prepaid_amount is
  'Amount of the prepayment, rounded. The amount to pay is smaller by it.';
comment on column invoices.payable_rounding_amount is
  'Rounding that is part of the amount to pay. Null: none.';
comment on column adjustment_notes.prepayment is
  'Payment before the issue, as the API shows it. Null: none.';
comment on column adjustment_notes.prepaid_amount is
  'Amount of the prepayment, rounded. The amount to pay is smaller by it.';
comment on column adjustment_notes.payable_rounding_amount is
  'Rounding that is part of the amount to pay. Null: none.';
comment on column consolidated_invoices.prepayment is
  'Sum of the prepayments of its invoices, as the API shows it. Null: none.';
comment on column consolidated_invoices.prepaid_amount is
  'Amount of the prepayments. The amount to pay is smaller by it.';
comment on column consolidated_invoices.payable_rounding_amount is
  'Sum of the roundings of its invoices. Null: none.';
