create or replace function metadata_matching(for_company bigint, of_list text, wanted jsonb)
  returns bigint[]
  stable language sql
  set plan_cache_mode = force_custom_plan as $$
  select coalesce(array_agg(found.record_id), '{}')
    from (select e.record_id
            from jsonb_each_text(wanted) w
            join metadata_entries e
              on e.company_id = for_company and e.list = of_list
             and e.key = w.key and e.value = w.value
           group by e.record_id
          having count(*) = (select count(*) from jsonb_object_keys(wanted))) found
$$;
comment on function metadata_matching is
  'Ids of the records of a list whose metadata has all the wanted entries, {key: text}. Deleted '
  'ones may be among them.';
