-- One expression without SET and security definer, so that PostgreSQL inlines it and reads no more
-- than the stored sizes.
create or replace function consolidated_invoice_size(invoice consolidated_invoices) returns int
  stable parallel safe language sql
  return pg_column_size((invoice).line_items)
         + coalesce(pg_column_size((invoice).invoice_level_allowance_charge), 0);
comment on function consolidated_invoice_size is
  'Bytes that the documents of a consolidated invoice occupy as they are stored, which may be '
  'compressed.';
