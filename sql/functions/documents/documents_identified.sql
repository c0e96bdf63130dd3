create or replace function documents_identified(for_company bigint, of_kind text, words text)
  returns bigint[]
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  short text := lower(regexp_replace(words, '0*([0-9]+)$', '\1'));  -- without padding
  -- A full code ends with the code, but its prefix may end with digits too.
  digits text := substring(words from '[0-9]+$');
  codes bigint[] := array(
    select right(digits, places)::bigint
      from generate_series(1, least(length(digits), 12)) places);
begin
  return array(
    select d.id
      from documents d
      join companies c on c.id = d.company_id
     where d.company_id = for_company
       and c.id = for_company
       and d.kind = of_kind
       and d.deleted_at is null
       and d.code = any (codes)
       and (short in (d.code::text, lower(regexp_replace(
              document_number(d.type, d.code, c.setting), '0*([0-9]+)$', '\1')))
            or lower(document_number(d.type, d.code, c.setting)) = lower(words))
    union
    select d.id
      from documents d
     where d.company_id = for_company
       and d.kind = of_kind
       and d.deleted_at is null
       and d.reference = words
    union
    select d.document_id
      from submitted_documents d
     where d.company_id = for_company and d.kind = of_kind and d.uuid = upper(words)
    union
    select d.document_id
      from submitted_documents d
     where d.company_id = for_company and d.kind = of_kind and d.number = words);
end $$;
comment on function documents_identified is
  'Ids of the documents of a kind with a code or a full code, also without its padding, a number '
  'under which they were submitted, a reference, or a uuid of the portal. Deleted ones may be '
  'among them.';
