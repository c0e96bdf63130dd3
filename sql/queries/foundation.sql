-- What holds the rest: migrations, the wall between companies, locks of a session. No company is named here.

-- name: migrations_lock :value
-- One migrating process at a time; let go when the session ends.
select pg_advisory_lock(hashtextextended('einvoice migrations', 0));

-- name: migrations_prepare :exec
create table if not exists schema_migrations (
  name text primary key,
  applied_at timestamptz not null default clock_timestamp()
);

-- name: migrations_done :many
select name from schema_migrations;

-- name: migration_note :exec
insert into schema_migrations (name) values (:name);

-- name: wall_gaps :many
-- One row for each thing that would let one company, or one account, see another's rows.
select format('the role %s may step over it', rolname) as gap
  from pg_roles
 where rolname = current_user and (rolsuper or rolbypassrls)
union all
select format('the role %s owns the table %s', current_user, c.relname)
  from pg_class c
 where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relowner = (select oid from pg_roles where rolname = current_user)
union all
select format('the table %s has no forced policy', c.relname)
  from pg_class c
  join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
                     and (a.attname in ('company_id', 'account_id')
                          or a.attname = 'id' and c.relname in ('companies', 'accounts'))
 where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
   and not (c.relrowsecurity and c.relforcerowsecurity
            and exists (select from pg_policy p where p.polrelid = c.oid and p.polname in ('own_company', 'own_account')))
union all
select format('the policy %s opens the table %s', p.polname, p.polrelid::regclass)
  from pg_policy p
 where p.polpermissive and p.polname not in ('own_company', 'own_account')
   and exists (select from unnest(p.polroles) r where r = 0 or pg_has_role(current_user, r, 'usage'))
union all
select format('the view %s does not ask its caller''s rights', c.relname)
  from pg_class c
 where c.relnamespace = 'public'::regnamespace and c.relkind = 'v'
   and not coalesce(c.reloptions @> array['security_invoker=true'], false);

-- name: submission_lock_try :value
-- Whether this session alone works on the submission from now on.
select pg_try_advisory_lock(hashtextextended(format('submission %s %s', :company_id::bigint, :id::bigint), 0));

-- name: submission_lock_release :value
select pg_advisory_unlock(hashtextextended(format('submission %s %s', :company_id::bigint, :id::bigint), 0));

-- name: ping :value
select 1;
