-- PL/pgSQL, because only its statements can be planned for the given filters at each call while the
-- other statements of the service have generic plans.
create or replace function invoice_search(
    for_company bigint,
    of_status text,
    of_type text,
    issued_from timestamptz,
    issued_to timestamptz,
    words text,
    sort_order text,
    per_page bigint,
    skipped bigint,
    budget bigint)
  returns table (total bigint, id bigint, record json)
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  wanted_name text := search_text(words);
  first_word text := split_part(wanted_name, ' ', 1);
  -- A full code ends with the code, but its prefix may end with digits too.
  digits text := substring(words from '[0-9]+$');
  codes bigint[] := array(
    select right(digits, places)::bigint
      from generate_series(1, least(length(digits), 12)) places);
begin
  return query
  with matching as materialized (
    select i.id
      from invoices i
      join companies c on c.id = i.company_id
     where i.company_id = for_company
       and c.id = for_company
       and i.code = any (codes)
       and (i.code::text = words
            or lower(full_code(
                 invoice_prefix(i.type, c.setting),
                 (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
                 i.code)) = lower(words))
    union
    select w.invoice_id
      from invoice_words w
     where w.company_id = for_company
       and wanted_name <> ''
       and w.word >= first_word
       and w.word < first_word || chr(1114111)
       and (wanted_name = first_word
            or (select position(' ' || wanted_name in ' ' || search_text(i.buyer ->> 'name')) > 0
                  from invoices i
                 where i.company_id = for_company and i.id = w.invoice_id))
  ), found as not materialized (
    select i.id, i.issue_date, i.code, i.bytes
      from invoices i
     where i.company_id = for_company and i.deleted_at is null
       and (of_status is null or i.status = of_status)
       and (of_type is null or i.type = of_type)
       and (issued_from is null or i.issue_date >= issued_from)
       and (issued_to is null or i.issue_date <= issued_to)
       and (words is null or i.id in (select matching.id from matching))
  ), page as materialized (
    select row_number() over () as place, ordered.id, ordered.bytes
      from (select found.id, found.bytes
              from found
             order by case when sort_order = 'id' then found.id end,
                      case when sort_order = '-id' then found.id end desc,
                      case when sort_order = 'issue_date' then found.issue_date end,
                      case when sort_order = '-issue_date' then found.issue_date end desc,
                      case when sort_order = 'code' then found.code end,
                      case when sort_order = '-code' then found.code end desc,
                      case when sort_order in ('issue_date', 'code') then found.id end,
                      case when sort_order in ('-issue_date', '-code') then found.id end desc
             limit per_page offset skipped) ordered
  )
  select counted.total,
         page.id,
         case when (select sum(page.bytes) from page) <= budget
              then (select to_json(r)
                      from invoice_records r
                     where r.company_id = for_company and r.id = page.id)
         end
    from (select case when issued_from is null and issued_to is null and words is null
                      then (select coalesce(sum(n.live), 0)::bigint
                              from record_counts n
                             where n.company_id = for_company
                               and n.list = 'invoices'
                               and (of_status is null or n.status = of_status)
                               and (of_type is null or n.type = of_type))
                      else (select count(*) from found)
                 end as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function invoice_search is
  'A page of invoices that match filters, in a sort order: rows of the total, an id and a record. '
  'The total is maintained for filters by status and type, else it is counted. `words` are a code, '
  'a full code, or a part of the buyer''s name that begins with a word.';
