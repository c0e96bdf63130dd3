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
  matching bigint[] := case when words is not null then invoices_matching(for_company, words) end;
begin
  return query
  with found as not materialized (
    select i.id, i.issue_date, i.code, i.bytes
      from invoices i
     where i.company_id = for_company and i.deleted_at is null
       and (of_status is null or i.status = of_status)
       and (of_type is null or i.type = of_type)
       and (issued_from is null or i.issue_date >= issued_from)
       and (issued_to is null or i.issue_date <= issued_to)
       and (words is null or i.id = any (matching))
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
  'The total is maintained for filters by status and type, else it is counted.';
