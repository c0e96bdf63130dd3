create or replace function invoice_prefix(type text, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> case when type like '%SELF_BILLED%'
                          then 'SELF_BILLED_INVOICE_PREFIX'
                          else 'INVOICE_PREFIX' end;
comment on function invoice_prefix is
  'Prefix of the number of an invoice, from the company''s settings.';
