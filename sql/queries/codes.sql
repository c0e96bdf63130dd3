-- Code lists that the authority publishes. They belong to no company.

-- name: code_list_all :many
select code_list, code, description, valid_from from code_lists where valid_from <= current_date;

-- name: code_list_put :exec
-- Store codes that are valid from today. :codes is a JSON array of {code, description}. Codes that
-- are missing in a newer list stay, because documents name them.
insert into code_lists (code_list, code, description, valid_from)
select :code_list, member ->> 'code', member ->> 'description', current_date
  from jsonb_array_elements(:codes::jsonb) member
    on conflict (code_list, code) do update set description = excluded.description;
