-- PL/pgSQL, because only its statements can be planned for the given filters at each call while the
-- other statements of the service have generic plans.
create or replace function document_search(
    for_company bigint,
    of_kind text,
    filters jsonb,
    sort_order text,
    per_page bigint,
    skipped bigint)
  returns table (total bigint, is_exact boolean, id bigint)
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  is_searched boolean := filters ?| array['query', 'buyer_tin'];
  after bigint := filters ->> 'after';
  statuses text[] := string_to_array(filters ->> 'status', ',');
  of_type text := filters ->> 'type';
  -- An order by the time of change reads the index of these times.
  present jsonb := case when sort_order in ('updated_at', '-updated_at')
                        then '{"updated_from": "-infinity"}' else '{}' end::jsonb || filters;
  described bigint[] :=
    case when filters ? 'metadata'
         then metadata_matching(for_company, 'documents', filters -> 'metadata') end;
  kept bigint :=  -- The total of these filters is kept in record_counts.
    case when filters - '{status,type,count_to,after}'::text[] = '{}'
         then (select coalesce(sum(n.live), 0)
                 from record_counts n
                where n.company_id = for_company
                  and n.list = of_kind
                  and (statuses is null or n.status = any (statuses))
                  and (of_type is null or n.type = of_type)) end;
  count_to bigint := filters ->> 'count_to';
  -- One match more than the page and the bound need shows that there are more. Null: no bound.
  most bigint :=
    case when count_to is not null then greatest(count_to, skipped + per_page) + 1 end;
  matching bigint[];
begin
  if kept <= skipped then
    return query select kept, true, null::bigint;
    return;
  end if;
  if is_searched then
    -- The newest matches are enough for the count, and those after the cursor for the page.
    matching := documents_matching(
      for_company, of_kind, filters, described, case when sort_order = '-id' then most end, null);
    if after is not null and sort_order = '-id' and most is not null then
      matching := matching || documents_matching(
        for_company, of_kind, filters, described, skipped + per_page, after);
    end if;
  end if;
  return query
  -- Matches are found and sorted by indexes alone where possible: only the page is read.
  with found as not materialized (
    select d.id, d.issue_date, d.code, d.updated_at, d.amount
      from documents_filtered(for_company, of_kind, present, described) d
     where not is_searched or d.id = any (matching)
  ), page as materialized (
    select row_number() over () as place, ordered.id
      from (select found.id
              from found
             where after is null
                or sort_order = '-id' and found.id < after
                or sort_order = 'id' and found.id > after
             order by case when sort_order = 'id' then found.id end,
                      case when sort_order = '-id' then found.id end desc,
                      case when sort_order = 'issue_date' then found.issue_date end,
                      case when sort_order = '-issue_date' then found.issue_date end desc,
                      case when sort_order = 'code' then found.code end,
                      case when sort_order = '-code' then found.code end desc,
                      case when sort_order = 'updated_at' then found.updated_at end,
                      case when sort_order = '-updated_at' then found.updated_at end desc,
                      case when sort_order = 'amount' then found.amount end,
                      case when sort_order = '-amount' then found.amount end desc,
                      case when left(sort_order, 1) <> '-' then found.id end,
                      case when left(sort_order, 1) = '-' then found.id end desc
             limit per_page offset skipped) ordered
  )
  select counted.total,
         kept is not null or most is null or counted.total < most,
         page.id
    from (select coalesce(kept, (select count(*) from (select from found limit most) each))
                 as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function document_search is
  'A page of the documents of a kind that match filters, in a sort order: rows of the total and an '
  'id. An empty page is a row with the total alone. The total is maintained for filters by status '
  'and type, else it is counted: all matches, or with count_to about so many. is_exact is false '
  'if there are more. With the filter `after`, an id, the page has the first ones after this id; '
  'the total includes those before it.';
