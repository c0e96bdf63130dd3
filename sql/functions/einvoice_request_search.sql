-- PL/pgSQL for the same reason as invoice_search.
create or replace function einvoice_request_search(
    for_company bigint,
    of_status text,
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
    select e.id, e.bytes
      from einvoice_requests e
     where e.company_id = for_company and e.deleted_at is null
       and (of_status is null or e.status = of_status)
       and (words is null
            or lower(e.invoice_code) = lower(words)
            or wanted_name <> ''
               and position(' ' || wanted_name in ' ' || search_text(e.buyer ->> 'name')) > 0)
  ), page as materialized (
    select row_number() over () as place, ordered.id, ordered.bytes
      from (select found.id, found.bytes
              from found
             order by case when sort_order = 'id' then found.id end,
                      case when sort_order = '-id' then found.id end desc
             limit per_page offset skipped) ordered
  )
  select counted.total,
         page.id,
         case when (select sum(page.bytes) from page) <= budget
              then (select to_json(r)
                      from einvoice_request_records r
                     where r.company_id = for_company and r.id = page.id)
         end
    from (select case when words is null
                      then (select coalesce(sum(n.live), 0)::bigint
                              from record_counts n
                             where n.company_id = for_company
                               and n.list = 'einvoice_requests'
                               and (of_status is null or n.status = of_status))
                      else (select count(*) from found)
                 end as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function einvoice_request_search is
  'A page of e-invoice requests as invoice_search returns one.';
