create or replace view document_keys with (security_invoker = true) as
select company_id,
       id as invoice_id,
       null::bigint as adjustment_note_id,
       null::bigint as consolidated_invoice_id
  from invoices
 where deleted_at is null
union all
select company_id, null, id, null
  from adjustment_notes
 where deleted_at is null
union all
select company_id, null, null, id
  from consolidated_invoices
 where deleted_at is null;
grant select on document_keys to einvoice_service, einvoice_reader;
call copy_comments('submitted_documents', 'document_keys');
comment on view document_keys is
  'The keys of all documents that are not deleted, in the columns by which a submitted document '
  'refers to one.';
