-- PL/pgSQL for the same reason as invoice_search.
create or replace function adjustment_note_search(
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
begin
  return query
  with found as not materialized (
    select n.id, n.issue_date, n.code, n.bytes
      from adjustment_notes n
      join companies c on c.id = n.company_id
      left join invoices i on i.company_id = n.company_id and i.id = n.invoice_id
     where n.company_id = for_company and c.id = for_company and n.deleted_at is null
       and (of_status is null or n.status = of_status)
       and (of_type is null or n.type = of_type)
       and (issued_from is null or n.issue_date >= issued_from)
       and (issued_to is null or n.issue_date <= issued_to)
       and (words is null
            or n.code::text = words
            or lower(full_code(
                 note_prefix(n.type, c.setting),
                 (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
                 n.code)) = lower(words)
            or wanted_name <> ''
               and position(' ' || wanted_name in ' ' || search_text(i.buyer ->> 'name')) > 0)
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
                      from adjustment_note_records r
                     where r.company_id = for_company and r.id = page.id)
         end
    from (select case when issued_from is null and issued_to is null and words is null
                      then (select coalesce(sum(n.live), 0)::bigint
                              from record_counts n
                             where n.company_id = for_company
                               and n.list = 'adjustment_notes'
                               and (of_status is null or n.status = of_status)
                               and (of_type is null or n.type = of_type))
                      else (select count(*) from found)
                 end as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function adjustment_note_search is
  'A page of adjustment notes as invoice_search returns one. The buyer is that of the target.';
