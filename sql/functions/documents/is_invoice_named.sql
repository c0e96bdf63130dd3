create or replace function is_invoice_named(words text, type text, code bigint, setting jsonb)
  returns boolean
  immutable parallel safe language sql
  return words in (code::text, document_number(type, code, setting));
comment on function is_invoice_named is
  'Whether a text is the code or the full code of an invoice of a company with these settings.';
