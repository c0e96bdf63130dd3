-- Code lists that the authority publishes; they belong to no company.

-- name: code_list_all :many
select code_list, code, description, valid_from from code_lists where valid_from <= current_date;

-- name: code_list_put :exec
-- :codes is a JSON array of {code, description}, which hold from now on. Codes that a newer list leaves out stay:
-- documents name them.
insert into code_lists (code_list, code, description, valid_from)
select :code_list, member ->> 'code', member ->> 'description', current_date
  from jsonb_array_elements(:codes::jsonb) member
    on conflict (code_list, code) do update set description = excluded.description;
