create or replace function document_number(type text, code bigint, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> case type
                     when 'CONSOLIDATED_INVOICE' then 'CONSOLIDATE_INVOICE_PREFIX'
                     when 'CONSOLIDATED_SELF_BILLED_INVOICE'
                     then 'CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX'
                     when 'PENDING_FINALIZE_INVOICE' then 'INVOICE_PREFIX'
                     when 'PENDING_FINALIZE_SELF_BILLED_INVOICE' then 'SELF_BILLED_INVOICE_PREFIX'
                     else type || '_PREFIX'
                     end
         || lpad(
              code::text,
              greatest((setting ->> 'PREFIX_DIGIT_COUNT')::int, length(code::text)),
              '0');
comment on function document_number is
  'Full number of a document: the prefix of its type in the company''s settings, and its code, '
  'padded with zeros to a number of digits. A longer code is not truncated.';
