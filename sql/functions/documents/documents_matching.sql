-- PL/pgSQL, because only its statements can be planned for the given words at each call while the
-- other statements of the service have generic plans.
create or replace function documents_matching(
    for_company bigint, of_kind text, filters jsonb, described bigint[], most bigint, before bigint)
  returns bigint[]
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  words text := coalesce(filters ->> 'query', filters ->> 'buyer_tin');
  identified bigint[] := documents_identified(for_company, of_kind, words);
  wanted text := search_text(words);
  -- Buyers are looked up by the TIN of the filter, if there is one: fewer have it than a name.
  known text := search_text(coalesce(filters ->> 'buyer_tin', words));
  known_words text[] := string_to_array(known, ' ');
  first_word text := known_words[1];
  last_word text := known_words[cardinality(known_words)];  -- a word of the text begins with it
  -- Where very many buyers have the last word, those with the first one are read.
  is_first_read boolean := cardinality(known_words) > 1 and 10000 = (
    select count(*)
      from (select
              from buyer_words w
             where w.company_id = for_company
               and w.word >= last_word
               and w.word < last_word || chr(1114111)
             order by w.word
             limit 10000) each);
  texts text[];
  -- Of very many matches, the newest are found sooner without the index of buyers.
  is_walked boolean;
  matching bigint[];
begin
  select array_agg(distinct each.buyer_text), most is not null and count(*) = 10000
    into texts, is_walked
    from (select w.buyer_text
            from buyer_words w
           where w.company_id = for_company
             and (not is_first_read or w.word = first_word)
             and (is_first_read
                  or w.word >= last_word and w.word < last_word || chr(1114111))
             and position(' ' || known in ' ' || w.buyer_text) > 0
             and wanted <> ''
             and position(' ' || wanted in ' ' || w.buyer_text) > 0
           limit case when most is not null then 10000 end) each;
  is_walked := is_walked or most is not null and 10000 = (
    select count(*)
      from (select
              from documents d
             where d.company_id = for_company and d.buyer_text = any (texts)
             limit 10000) each);
  execute format(
    'select array(
       select d.id %1$s and d.id = any ($5)
        union all
       (select d.id %1$s and d.id <> all ($5) and %2$s and ($7 is null or d.id < $7)
         order by d.id desc
         limit $8))',
    documents_filter(of_kind, filters, null),
    case when is_walked then 'position('' '' || $9 in '' '' || n.buyer_text) > 0'
         else 'n.buyer_text = any ($6)' end)
    into matching
    using for_company, of_kind, filters, described, identified, texts, before, most, wanted;
  return matching;
end $$;
comment on function documents_matching is
  'Ids of the documents of a kind that match the filters of a list, with a code, a full code, a '
  'reference, a uuid of the portal, or a part of the buyer''s name and TIN that begins with a '
  'word. The filter by TIN alone searches for its TIN. Of those with the buyer the newest '
  '`most`, or all if that is null, with ids below `before`.';
