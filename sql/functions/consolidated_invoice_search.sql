-- PL/pgSQL for the same reason as invoice_search.
create or replace function consolidated_invoice_search(
    for_company bigint,
    filters jsonb,
    sort_order text,
    per_page bigint,
    skipped bigint,
    budget bigint)
  returns table (total bigint, is_exact boolean, id bigint, record json)
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  statuses text[] := string_to_array(filters ->> 'status', ',');
  of_status text := case when cardinality(statuses) = 1 then statuses[1] end;
  of_type text := filters ->> 'type';
  issued_from timestamptz := filters ->> 'issued_from';
  issued_to timestamptz := filters ->> 'issued_to';
  updated_from timestamptz := filters ->> 'updated_from';
  amount_from numeric := filters ->> 'amount_from';
  amount_to numeric := filters ->> 'amount_to';
  words text := filters ->> 'query';
  is_counted boolean :=  -- The totals of these filters are maintained.
    filters - '{status,type,count_to}'::text[] = '{}';
  count_to bigint := filters ->> 'count_to';
  -- One match more than the page and the bound need shows that there are more. Null: no bound.
  most bigint :=
    case when count_to is not null then greatest(count_to, skipped + per_page) + 1 end;
begin
  return query
  with found as not materialized (
    select k.id, k.issue_date, k.code, k.updated_at, k.payable_amount as amount,
           k.bytes
      from consolidated_invoices k
      join companies c on c.id = k.company_id
     where k.company_id = for_company and c.id = for_company and k.deleted_at is null
       and (statuses is null
            or k.status = of_status
            or of_status is null and k.status = any (statuses))
       and (of_type is null or k.type = of_type)
       and (issued_from is null or k.issue_date >= issued_from)
       and (issued_to is null or k.issue_date <= issued_to)
       and (updated_from is null or k.updated_at >= updated_from)
       and (amount_from is null or k.payable_amount >= amount_from)
       and (amount_to is null or k.payable_amount <= amount_to)
       and (words is null
            or k.code::text = words
            or exists (select
                         from submitted_documents d
                        where d.company_id = for_company
                          and d.consolidated_invoice_id = k.id
                          and d.uuid = upper(words))
            or lower(full_code(
                 consolidated_prefix(k.type, c.setting),
                 (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
                 k.code)) = lower(words))
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
                      case when sort_order = 'updated_at' then found.updated_at end,
                      case when sort_order = '-updated_at' then found.updated_at end desc,
                      case when sort_order = 'amount' then found.amount end,
                      case when sort_order = '-amount' then found.amount end desc,
                      case when left(sort_order, 1) <> '-' then found.id end,
                      case when left(sort_order, 1) = '-' then found.id end desc
             limit per_page offset skipped) ordered
  )
  select counted.total,
         is_counted or most is null or counted.total < most,
         page.id,
         case when (select sum(page.bytes) from page) <= budget
              then (select to_json(r)
                      from consolidated_invoice_records r
                     where r.company_id = for_company and r.id = page.id)
         end
    from (select case when is_counted
                      then (select coalesce(sum(n.live), 0)::bigint
                              from record_counts n
                             where n.company_id = for_company
                               and n.list = 'consolidated_invoices'
                               and (statuses is null or n.status = any (statuses))
                               and (of_type is null or n.type = of_type))
                      else (select count(*) from (select from found limit most) each)
                 end as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function consolidated_invoice_search is
  'A page of consolidated invoices as invoice_search returns one.';
