-- PL/pgSQL, because only its statements can be planned for the given filters at each call while the
-- other statements of the service have generic plans.
create or replace function invoice_search(
    for_company bigint,
    filters jsonb,
    sort_order text,
    per_page bigint,
    skipped bigint,
    budget bigint)
  returns table (total bigint, id bigint, record json)
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
  of_reference text := filters ->> 'reference';
  words text := filters ->> 'query';
  described bigint[] :=
    case when filters ? 'metadata'
         then metadata_matching(for_company, 'invoices', filters -> 'metadata') end;
  is_counted boolean :=  -- The totals of these filters are maintained.
    filters - '{status,type}'::text[] = '{}';
  matching bigint[] := case when words is not null then invoices_matching(for_company, words) end;
begin
  return query
  with found as not materialized (
    select i.id, i.issue_date, i.code, i.updated_at, i.payable_amount as amount,
           i.bytes + coalesce(octet_length(i.metadata::text), 0) as bytes
      from invoices i
     where i.company_id = for_company and i.deleted_at is null
       and (statuses is null
            or i.status = of_status
            or of_status is null and i.status = any (statuses))
       and (of_type is null or i.type = of_type)
       and (issued_from is null or i.issue_date >= issued_from)
       and (issued_to is null or i.issue_date <= issued_to)
       and (updated_from is null or i.updated_at >= updated_from)
       and (amount_from is null or i.payable_amount >= amount_from)
       and (amount_to is null or i.payable_amount <= amount_to)
       and (of_reference is null or i.reference = of_reference)
       and (described is null or i.id = any (described))
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
                      case when sort_order = 'updated_at' then found.updated_at end,
                      case when sort_order = '-updated_at' then found.updated_at end desc,
                      case when sort_order = 'amount' then found.amount end,
                      case when sort_order = '-amount' then found.amount end desc,
                      case when left(sort_order, 1) <> '-' then found.id end,
                      case when left(sort_order, 1) = '-' then found.id end desc
             limit per_page offset skipped) ordered
  )
  select counted.total,
         page.id,
         case when (select sum(page.bytes) from page) <= budget
              then (select to_json(r)
                      from invoice_records r
                     where r.company_id = for_company and r.id = page.id)
         end
    from (select case when is_counted
                      then (select coalesce(sum(n.live), 0)::bigint
                              from record_counts n
                             where n.company_id = for_company
                               and n.list = 'invoices'
                               and (statuses is null or n.status = any (statuses))
                               and (of_type is null or n.type = of_type))
                      else (select count(*) from found)
                 end as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function invoice_search is
  'A page of invoices that match filters, in a sort order: rows of the total, an id and a record. '
  'The total is maintained for filters by status and type, else it is counted.';
