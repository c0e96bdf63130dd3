-- Code lists that the authority publishes. They belong to no company.

-- name: code_list_versions :many
-- Return what changes with each import of a list, by which a process recognises a newer one.
select code_list, count(*), sum(extract(epoch from imported_at))
  from code_lists
 group by code_list
 order by code_list;

-- name: code_list_codes :many
-- Return the codes of all imported lists, with the time of the list's latest import.
select code_list, code, description, valid_from, valid_to,
       max(imported_at) over (partition by code_list) as imported_at
  from code_lists
 order by code_list, code;

-- name: code_list_put :exec
-- Store an import of a list. :codes is a JSON array of {code, description, valid_from, valid_to,
-- built_in_from}, the last three optional: a known code keeps its days, also one that is built in,
-- and a new one of a list that was imported before is valid from today. Codes that are missing in a
-- newer list stay, because documents name them.
insert into code_lists (code_list, code, description, valid_from, valid_to)
select :code_list,
       given.code,
       given.description,
       coalesce(
         given.valid_from,
         known.valid_from,
         given.built_in_from,
         (select least(current_date, given.valid_to)
            from code_lists
           where code_list = :code_list
           limit 1),
         '-infinity'),
       coalesce(
         given.valid_to,
         case when known.valid_to >= coalesce(given.valid_from, '-infinity')
              then known.valid_to end,
         'infinity')
  from jsonb_to_recordset(:codes::jsonb)
       as given (code text, description text, valid_from date, valid_to date, built_in_from date)
  left join code_lists known on known.code_list = :code_list and known.code = given.code
    on conflict (code_list, code) do update
   set description = excluded.description,
       valid_from = excluded.valid_from,
       valid_to = excluded.valid_to,
       imported_at = clock_timestamp();
