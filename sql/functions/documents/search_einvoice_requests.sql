-- PL/pgSQL for the same reason as documents_matching.
create or replace function search_einvoice_requests(
    for_company bigint,
    filters jsonb,
    sort_order text,
    per_page bigint,
    skipped bigint)
  returns table (total bigint, id bigint)
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  statuses text[] := string_to_array(filters ->> 'status', ',');
  of_status text := case when cardinality(statuses) = 1 then statuses[1] end;
  words text := filters ->> 'query';
  described bigint[] :=
    case when filters ? 'metadata'
         then metadata_matching(for_company, 'einvoice_requests', filters -> 'metadata') end;
  kept bigint :=  -- The total of these filters is kept in record_counts.
    case when filters - 'status' = '{}'
         then (select coalesce(sum(n.live), 0)
                 from record_counts n
                where n.company_id = for_company
                  and n.list = 'einvoice_request'
                  and (statuses is null or n.status = any (statuses))) end;
  wanted text := search_text(words);
begin
  if kept <= skipped then
    return query select kept, null::bigint;
    return;
  end if;
  return query
  with found as not materialized (
    select e.id
      from einvoice_requests e
     where e.company_id = for_company and e.deleted_at is null
       and (statuses is null
            or e.status = of_status
            or of_status is null and e.status = any (statuses))
       and (described is null or e.id = any (described))
       and (words is null
            or lower(e.invoice_code) = lower(words)
            or wanted <> ''
               and position(' ' || wanted in ' ' || searched_party(e.buyer::json)) > 0)
  ), page as materialized (
    select row_number() over () as place, ordered.id
      from (select found.id
              from found
             order by case when sort_order = 'id' then found.id end,
                      case when sort_order = '-id' then found.id end desc
             limit per_page offset skipped) ordered
  )
  select counted.total, page.id
    from (select coalesce(kept, (select count(*) from found)) as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function search_einvoice_requests is
  'A page of e-invoice requests as document_search returns one.';
