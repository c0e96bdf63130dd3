create or replace function document_search(
    for_company bigint,
    of_kind text,
    filters jsonb,
    sort_order text,
    per_page bigint,
    skipped bigint)
  returns table (total bigint, is_exact boolean, id bigint)
  stable language plpgsql as $$
#variable_conflict use_column
declare
  after bigint := filters ->> 'after';
  statuses text[] := string_to_array(filters ->> 'status', ',');
  of_type text := filters ->> 'type';
  direction text := case when left(sort_order, 1) = '-' then 'desc' else 'asc' end;
  sorted text := ltrim(sort_order, '-');
  -- An order by the time of change reads the index of these times.
  present jsonb :=
    case when sorted = 'updated_at' then '{"updated_from": "-infinity"}' else '{}' end::jsonb
    || filters;
  found text;
  described bigint[] :=
    case when filters ? 'metadata'
         then metadata_matching(
                for_company,
                case of_kind when 'einvoice_request' then 'einvoice_requests' else 'documents' end,
                filters -> 'metadata') end;
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
  if of_kind <> 'einvoice_request' and filters ?| array['query', 'buyer_tin'] then
    -- The newest matches are enough for the count, and those after the cursor for the page.
    matching := documents_matching(
      for_company, of_kind, filters, described, case when sort_order = '-id' then most end, null);
    if after is not null and sort_order = '-id' and most is not null then
      matching := matching || documents_matching(
        for_company, of_kind, filters, described, skipped + per_page, after);
    end if;
    present := present || '{"matching": true}';
  end if;
  found := documents_filter(of_kind, present, sorted);
  return query execute
    -- Matches are found and sorted by indexes alone where possible: only the page is read.
    format(
      'with page as materialized (
         select row_number() over () as place, ordered.id
           from (select d.id %1$s %2$s order by %3$s %4$s, d.id %4$s limit $6 offset $7) ordered
       )
       select counted.total, $8 is not null or $9 is null or counted.total < $9, page.id
         from (select coalesce($8, (select count(*) from (select %1$s limit $9) each))
                      as total) counted
         left join page on true
        order by page.place',
      found,
      case when after is not null
           then format('and d.id %s $10', case when direction = 'desc' then '<' else '>' end) end,
      case sorted when 'updated_at' then 's.updated_at' when 'amount' then 'd.payable_amount'
                  else 'd.' || quote_ident(sorted) end,
      direction)
    using for_company, of_kind, present, described, matching, per_page, skipped, kept, most, after;
end $$;
comment on function document_search is
  'A page of the documents of a kind, or of the e-invoice requests, that match filters, in a sort '
  'order: rows of the total and an id. An empty page is a row with the total alone. The total is '
  'maintained for filters by status and type, else it is counted: all matches, or with count_to '
  'about so many. is_exact is false if there are more. With the filter `after`, an id, the page '
  'has the first ones after this id; the total includes those before it.';
