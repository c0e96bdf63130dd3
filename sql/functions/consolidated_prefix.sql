create or replace function consolidated_prefix(type text, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> case when type = 'CONSOLIDATED_SELF_BILLED_INVOICE'
                          then 'CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX'
                          else 'CONSOLIDATE_INVOICE_PREFIX' end;
comment on function consolidated_prefix is
  'Prefix of the number of a consolidated invoice, from the company''s settings.';
