-- References and metadata of clients: stored and returned with a record, never sent to the portal.

alter table invoices add column reference text, add column metadata json;
alter table adjustment_notes add column reference text, add column metadata json;
alter table einvoice_requests add column metadata json;
comment on column invoices.reference is
  'Reference that the client chose, unique among the invoices of the company that are not deleted. '
  'Null: none.';
comment on column adjustment_notes.reference is
  'Reference that the client chose, unique among the notes of the company that are not deleted. '
  'Null: none.';
comment on column invoices.metadata is 'Texts of the client by key. Null: none.';
comment on column adjustment_notes.metadata is 'Texts of the client by key. Null: none.';
comment on column einvoice_requests.metadata is 'Texts of the client by key. Null: none.';

create unique index invoices_reference_once on invoices (company_id, reference)
  where reference is not null and deleted_at is null;
create unique index adjustment_notes_reference_once on adjustment_notes (company_id, reference)
  where reference is not null and deleted_at is null;
create index invoices_by_update on invoices (company_id, updated_at, id) where deleted_at is null;
create index adjustment_notes_by_update on adjustment_notes (company_id, updated_at, id)
  where deleted_at is null;

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
call keep_metadata_entries('invoices');
call keep_metadata_entries('adjustment_notes');
call keep_metadata_entries('einvoice_requests');

-- Lists of submitted documents by status.
create index submitted_documents_by_status on submitted_documents (company_id, status, id);
