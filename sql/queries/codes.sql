-- Code lists that the authority publishes. They belong to no company.

-- name: code_list_imports :many
-- Return the number of imports of each list, by which a process recognises a newer one.
select code_list, number
  from code_list_imports;

-- name: code_list_codes :many
-- Return the codes of all imported lists, with the time of the list's latest import.
select l.code_list, l.code, l.description, l.valid_from, l.valid_to, i.imported_at
  from code_lists l
  join code_list_imports i on i.code_list = l.code_list
 order by l.code_list, l.code;

-- name: code_list_put :exec
-- Store an import of a list, and notify every process. :codes is a JSON array of {code,
-- description, valid_from, valid_to, built_in_from}, the last three optional: a known code keeps
-- its days, also one that is built in, and a new one of a list that was imported before is valid
-- from today. Codes that are missing in a newer list stay, because documents name them.
with stored as (
  insert into code_lists (code_list, code, description, valid_from, valid_to)
  select :code_list,
         given.code,
         given.description,
         coalesce(
           given.valid_from,
           known.valid_from,
           given.built_in_from,
           (select current_date from code_list_imports where code_list = :code_list),
           '-infinity'),
         coalesce(given.valid_to, known.valid_to, 'infinity')
    from jsonb_to_recordset(:codes::jsonb)
         as given (
           code text, description text, valid_from date, valid_to date, built_in_from date)
    left join code_lists known on known.code_list = :code_list and known.code = given.code
      on conflict (code_list, code) do update
     set description = excluded.description,
         valid_from = excluded.valid_from,
         valid_to = excluded.valid_to
)
insert into code_list_imports (code_list, number, imported_at)
values (:code_list, 1, now())
    on conflict (code_list) do update
   set number = code_list_imports.number + 1, imported_at = excluded.imported_at
returning pg_notify('code_lists_changed', code_list) is not null;
