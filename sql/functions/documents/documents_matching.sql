-- PL/pgSQL for the same reason as document_search.
create or replace function documents_matching(
    for_company bigint, of_kind text, filters jsonb, described bigint[], most bigint)
  returns bigint[]
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  words text := filters ->> 'query';
  identified bigint[] := documents_identified(for_company, of_kind, words);
  wanted_name text := search_text(words);
  name_words text[] := string_to_array(wanted_name, ' ');
  first_word text := name_words[1];
  last_word text := name_words[cardinality(name_words)];  -- a word of the name begins with it
  is_last_rare boolean := 10000 > (
    select count(*)
      from (select
              from invoice_words w
             where w.company_id = for_company
               and w.word >= last_word
               and w.word < last_word || chr(1114111)
             order by w.word
             limit 10000) each);
  -- Counted only if the last word is no help.
  is_first_rare boolean := not is_last_rare and cardinality(name_words) > 1 and 10000 > (
    select count(*)
      from (select
              from invoice_words w
             where w.company_id = for_company and w.word = first_word
             order by w.invoice_id
             limit 10000) each);
  -- Of very many matches, the newest are found sooner without the index of words.
  is_walked boolean := most is not null and not is_last_rare and not is_first_rare;
begin
  return array(
    with named as not materialized (
      select w.invoice_id
        from invoice_words w
       where not is_walked
         and not is_first_rare
         and w.company_id = for_company
         and w.word >= last_word
         and w.word < last_word || chr(1114111)
       union
      select w.invoice_id
        from invoice_words f
        join invoice_words w on w.company_id = f.company_id and w.invoice_id = f.invoice_id
       where is_first_rare
         and f.company_id = for_company
         and f.word = first_word
         and w.company_id = for_company
         and w.word >= last_word
         and w.word < last_word || chr(1114111)
    )
    select d.id
      from documents_filtered(for_company, of_kind, filters, described) d
     where d.id = any (identified)
     union all
    (select d.id
       from documents_filtered(for_company, of_kind, filters, described) d
      where is_walked
        and d.id <> all (identified)
        and position(' ' || wanted_name in ' ' || search_text(d.buyer ->> 'name')) > 0
      order by d.id desc
      limit most)
     union all
    (select d.id
       from named n
       join documents_filtered(for_company, of_kind, filters, described) d
         on d.named_by = n.invoice_id
      where d.id <> all (identified)
        and (cardinality(name_words) = 1
             or position(' ' || wanted_name in ' ' || search_text(d.buyer ->> 'name')) > 0)
      order by d.id desc
      limit most));
end $$;
comment on function documents_matching is
  'Ids of the documents of a kind that match the filters of a list, with a code, a full code, a '
  'reference, a uuid of the portal, or a part of the buyer''s name that begins with a word. Of '
  'those with the name the newest `most`, or all if that is null.';
