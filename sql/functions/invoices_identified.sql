create or replace function invoices_identified(for_company bigint, words text) returns bigint[]
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  -- A full code ends with the code, but its prefix may end with digits too.
  digits text := substring(words from '[0-9]+$');
  codes bigint[] := array(
    select right(digits, places)::bigint
      from generate_series(1, least(length(digits), 12)) places);
begin
  return array(
    select i.id
      from invoices i
      join companies c on c.id = i.company_id
     where i.company_id = for_company
       and c.id = for_company
       and i.deleted_at is null
       and i.code = any (codes)
       and (i.code::text = words
            or lower(full_code(
                 invoice_prefix(i.type, c.setting),
                 (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
                 i.code)) = lower(words))
    union
    select i.id
      from invoices i
     where i.company_id = for_company and i.deleted_at is null and i.reference = words
    union
    select d.invoice_id
      from submitted_documents d
     where d.company_id = for_company and d.uuid = upper(words) and d.invoice_id is not null);
end $$;
comment on function invoices_identified is
  'Ids of the invoices with a code, a full code, a reference, or a uuid of the portal. Deleted '
  'ones may be among them.';
