-- The first start: the demo company, and the login of support staff at the embedded PostgreSQL.

-- name: support_login_commands :many
-- Return the commands, in order, that create the login :name as a member of einvoice_reader, or
-- give it a new :password. They need a superuser. Concurrent runs wait for each other.
with locked as materialized (
  select pg_advisory_xact_lock(hashtext(:name::text))
)
select c.command
  from locked
 cross join lateral (
         values (1, case when exists (select from pg_roles where rolname = :name::text)
                         then format('alter role %I login password %L',
                                     :name::text, :password::text)
                         else format('create role %I login password %L in role einvoice_reader',
                                     :name::text, :password::text) end),
                (2, format('alter role %I set default_transaction_read_only = on', :name::text))
       ) as c (place, command)
 order by c.place;
