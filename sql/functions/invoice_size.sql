-- One expression without SET and security definer, so that PostgreSQL inlines it and reads no more
-- than the stored sizes.
create or replace function invoice_size(invoice invoices) returns int
  stable parallel safe language sql
  return pg_column_size((invoice).line_items)
         + coalesce(pg_column_size((invoice).buyer), 0)
         + coalesce(pg_column_size((invoice).supplier), 0)
         + coalesce(pg_column_size((invoice).invoice_level_allowance_charge), 0)
         + coalesce(pg_column_size((invoice).payment), 0)
         + coalesce(pg_column_size((invoice).delivery), 0)
         + coalesce(pg_column_size((invoice).document_references), 0);
comment on function invoice_size is
  'Bytes that the documents of an invoice occupy as they are stored, which may be compressed.';
