-- PL/pgSQL for the same reason as invoice_search.
create or replace function adjustment_note_search(
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
  of_reference text := filters ->> 'reference';
  words text := filters ->> 'query';
  described bigint[] :=
    case when filters ? 'metadata'
         then metadata_matching(for_company, 'adjustment_notes', filters -> 'metadata') end;
  is_counted boolean :=  -- The totals of these filters are maintained.
    filters - '{status,type,count_to}'::text[] = '{}';
  count_to bigint := filters ->> 'count_to';
  -- One match more than the page and the bound need shows that there are more. Null: no bound.
  most bigint :=
    case when count_to is not null then greatest(count_to, skipped + per_page) + 1 end;
  wanted_name text := search_text(words);
begin
  return query
  with found as not materialized (
    select n.id, n.issue_date, n.code, n.updated_at, n.payable_amount as amount,
           n.bytes + coalesce(octet_length(n.metadata::text), 0) as bytes
      from adjustment_notes n
      join companies c on c.id = n.company_id
      left join invoices i on i.company_id = n.company_id and i.id = n.invoice_id
     where n.company_id = for_company and c.id = for_company and n.deleted_at is null
       and (statuses is null
            or n.status = of_status
            or of_status is null and n.status = any (statuses))
       and (of_type is null or n.type = of_type)
       and (issued_from is null or n.issue_date >= issued_from)
       and (issued_to is null or n.issue_date <= issued_to)
       and (updated_from is null or n.updated_at >= updated_from)
       and (amount_from is null or n.payable_amount >= amount_from)
       and (amount_to is null or n.payable_amount <= amount_to)
       and (of_reference is null or n.reference = of_reference)
       and (described is null or n.id = any (described))
       and (words is null
            or n.code::text = words
            or n.reference = words
            or exists (select
                         from submitted_documents d
                        where d.company_id = for_company
                          and d.adjustment_note_id = n.id
                          and d.uuid = upper(words))
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
                      from adjustment_note_records r
                     where r.company_id = for_company and r.id = page.id)
         end
    from (select case when is_counted
                      then (select coalesce(sum(n.live), 0)::bigint
                              from record_counts n
                             where n.company_id = for_company
                               and n.list = 'adjustment_notes'
                               and (statuses is null or n.status = any (statuses))
                               and (of_type is null or n.type = of_type))
                      else (select count(*) from (select from found limit most) each)
                 end as total) counted
    left join page on true
   order by page.place;
end $$;
comment on function adjustment_note_search is
  'A page of adjustment notes as invoice_search returns one. The buyer is that of the target.';
