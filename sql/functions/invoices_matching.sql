-- PL/pgSQL for the same reason as invoice_search: the plan starts with the rarer one of two words.
create or replace function invoices_matching(for_company bigint, words text) returns bigint[]
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  wanted_name text := search_text(words);
  name_words text[] := string_to_array(wanted_name, ' ');
  first_word text := name_words[1];
  last_word text := name_words[cardinality(name_words)];
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
     where d.company_id = for_company and d.uuid = upper(words) and d.invoice_id is not null
    union
    select w.invoice_id
      from invoice_words w
     where cardinality(name_words) = 1
       and w.company_id = for_company
       and w.word >= last_word
       and w.word < last_word || chr(1114111)
    union
    select w.invoice_id
      from invoice_words w
      join invoice_words f
        on f.company_id = for_company and f.invoice_id = w.invoice_id and f.word = first_word
      join invoices i on i.company_id = for_company and i.id = w.invoice_id
     where cardinality(name_words) > 1
       and w.company_id = for_company
       and w.word >= last_word
       and w.word < last_word || chr(1114111)
       and position(' ' || wanted_name in ' ' || search_text(i.buyer ->> 'name')) > 0);
end $$;
comment on function invoices_matching is
  'Ids of the invoices with a code, a full code, a reference, a uuid of the portal, or a part of '
  'the buyer''s name that begins with a word. Deleted ones may be among them.';
