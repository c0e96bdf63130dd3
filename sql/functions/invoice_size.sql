-- One expression without SET and security definer, so that PostgreSQL inlines it and reads no more
-- than the stored sizes.
create or replace function invoice_size(invoice invoices) returns int
  stable parallel safe language sql
  return pg_column_size((invoice).line_items)
         * case when pg_column_compression((invoice).line_items) is null then 1 else 8 end
         + coalesce(pg_column_size((invoice).buyer), 0)
           * case when pg_column_compression((invoice).buyer) is null then 1 else 8 end
         + coalesce(pg_column_size((invoice).supplier), 0)
           * case when pg_column_compression((invoice).supplier) is null then 1 else 8 end
         + coalesce(pg_column_size((invoice).invoice_level_allowance_charge), 0)
         + coalesce(pg_column_size((invoice).payment), 0)
         + coalesce(pg_column_size((invoice).delivery), 0)
         + coalesce(pg_column_size((invoice).document_references), 0);
comment on function invoice_size is
  'Estimated bytes of the documents of an invoice. Those that are stored compressed count eight '
  'times their size.';
