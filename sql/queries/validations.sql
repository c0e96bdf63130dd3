-- Queries of the validation helpers. The checks of codes are {kind}_code_used.

-- name: tin_check_get :one
-- Return the company's own TIN, whether it is verified, and whether the portal confirmed :tin
-- within :keep: with :id_type and :id_value or, if :id_value is empty, with any of them.
select c.tin as own_tin,
       c.tin_verified_at is not null as is_verified,
       exists (select from tin_checks t
                where t.company_id = :company_id and t.tin = :tin
                  and (:id_value = '' or (t.id_type = :id_type and t.id_value = :id_value))
                  and t.confirmed_at > clock_timestamp() - :keep::interval) as is_confirmed
  from companies c
 where c.id = :company_id;

-- name: tin_check_keep :exec
-- Store a confirmation of the portal, and delete some that are too old to be used.
with old as (
  select tin, id_type, id_value
    from tin_checks
   where company_id = :company_id and confirmed_at <= clock_timestamp() - :keep::interval
     and (tin, id_type, id_value) <> (:tin, :id_type, :id_value)
   order by confirmed_at
   limit 100
     for update skip locked
), gone as (
  delete from tin_checks t
   using old
   where t.company_id = :company_id
     and t.tin = old.tin
     and t.id_type = old.id_type
     and t.id_value = old.id_value
)
insert into tin_checks (company_id, tin, id_type, id_value, confirmed_at)
values (:company_id, :tin, :id_type, :id_value, clock_timestamp())
    on conflict (company_id, tin, id_type, id_value) do update
   set confirmed_at = excluded.confirmed_at;
