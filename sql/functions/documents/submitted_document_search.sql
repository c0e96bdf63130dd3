-- PL/pgSQL for the same reason as document_search.
create or replace function submitted_document_search(
    for_company bigint,
    statuses text[],
    per_page bigint,
    skipped bigint)
  returns table (total bigint, data json)
  stable language plpgsql
  set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  of_status text := case when cardinality(statuses) = 1 then statuses[1] end;
begin
  return query
  with page as materialized (
    select d.id
      from submitted_documents d
     where d.company_id = for_company and d.deleted_at is null
       and (statuses is null
            or d.status = of_status
            or of_status is null and d.status = any (statuses))
     order by d.id desc
     limit per_page offset skipped
  )
  select (select coalesce(sum(n.live), 0)::bigint
            from record_counts n
           where n.company_id = for_company
             and n.list = 'submitted_document'
             and (statuses is null or n.status = any (statuses))),
         (select coalesce(json_agg(r order by r.id desc), '[]')
            from page
            join submitted_document_records r
              on r.company_id = for_company and r.id = page.id);
end $$;
comment on function submitted_document_search is
  'The total of the submitted documents of a company with one of some statuses, any if null, and a '
  'page of their records as a JSON array, newest first. Those of deleted documents are left out.';
