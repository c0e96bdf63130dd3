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
  code_list   text primary key,
  number      bigint not null,
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
