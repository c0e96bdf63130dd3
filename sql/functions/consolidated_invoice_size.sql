-- One expression without SET and security definer, so that PostgreSQL inlines it and reads no more
-- than the stored sizes.
create or replace function consolidated_invoice_size(invoice consolidated_invoices) returns int
  stable parallel safe language sql
  return pg_column_size((invoice).line_items)
         * case when pg_column_compression((invoice).line_items) is null then 1 else 8 end
         + coalesce(pg_column_size((invoice).invoice_level_allowance_charge), 0);
comment on function consolidated_invoice_size is
  'Estimated bytes of the documents of a consolidated invoice; see invoice_size.';
