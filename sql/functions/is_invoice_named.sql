create or replace function is_invoice_named(words text, type text, code bigint, setting jsonb)
  returns boolean
  immutable parallel safe language sql
  return words in (code::text,
                   full_code(
                     invoice_prefix(type, setting),
                     (setting ->> 'PREFIX_DIGIT_COUNT')::int,
                     code));
comment on function is_invoice_named is
  'Whether a text is the code or the full code of an invoice of a company with these settings.';
