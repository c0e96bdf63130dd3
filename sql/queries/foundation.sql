-- Statements that belong to no company: migrations, the check of tenant isolation, and session
-- locks.

-- name: unsafe_settings :value
-- Return the settings with which a crash loses acknowledged transactions of this login.
select coalesce(array_agg(name order by name), '{}')
  from pg_settings
 where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off';

-- name: migrations_permitted :value
-- Return whether the login may migrate: it is the owner of the schema, or may create it.
select coalesce(
         (select pg_has_role(relowner, 'usage')
            from pg_class
           where oid = to_regclass('public.schema_migrations')),
         has_schema_privilege('public', 'create'));

-- name: migrations_lock :value
-- Wait until no other process migrates. The lock ends with the session.
select pg_advisory_lock(hashtextextended('einvoice migrations', 0));

-- name: migrations_prepare :exec
-- Create the table of applied migrations if it is missing.
create table if not exists schema_migrations (
  name text primary key,
  applied_at timestamptz not null default clock_timestamp(),
  compatible_with text,
  sha256 bytea not null
);

-- name: migrations_done :many
select name, sha256 from schema_migrations order by name;

-- name: migration_note :exec
insert into schema_migrations (name, compatible_with, sha256)
values (:name, :compatible_with, :sha256);

-- name: schema_excluding :value
-- Return the names of the applied migrations that exclude a version of the service, which has the
-- :known ones. Null: none does. A migration excludes the versions before the one that it is
-- compatible with, or all earlier ones if it names none. A version is the number of its newest
-- migration.
select string_agg(m.name, ', ' order by m.name)
  from schema_migrations m
 where m.name <> all (:known::text[])
   and (m.compatible_with is null
        or m.compatible_with > (select max(left(k.name, 4)) from unnest(:known::text[]) k (name)));

-- name: sessions_before :many
-- Return the sessions in this database of versions of the service before :version: their number
-- and their hosts by their names, which are :application and a version. Hosts are null without the
-- right to see them.
select application_name as name,
       count(*) as sessions,
       string_agg(distinct host(client_addr), ', ') as hosts
  from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
   and split_part(application_name, ' ', 1) = :application::text
   and split_part(application_name, ' ', 2) < :version::text collate "C"
 group by application_name
 order by application_name;

-- name: migration_versions :many
-- Return the versions of the schema that were applied, the latest first: of its migrations, views
-- and functions.
select sha256
  from schema_versions
 order by applied_at desc;

-- name: migration_version_note :exec
insert into schema_versions (sha256)
values (:sha256);

-- name: migration_objects :many
-- Return the digests of the views and functions that were applied and are present. Those of
-- extensions do not count.
select o.file, o.sha256
  from schema_objects o
  join (select 'pg_class'::regclass as classid, oid, relname as name
          from pg_class
         where relnamespace = 'public'::regnamespace and relkind = 'v'
         union all
        select 'pg_proc'::regclass, oid, proname
          from pg_proc
         where pronamespace = 'public'::regnamespace
       ) present on present.name = substring(o.file from '([^/]+)\.sql$')
 where not exists (
         select
           from pg_depend d
          where d.classid = present.classid and d.objid = present.oid and d.deptype = 'e');

-- name: migration_object_note :exec
insert into schema_objects (file, sha256)
values (:file, :sha256)
    on conflict (file) do update
   set sha256 = excluded.sha256, applied_at = clock_timestamp();

-- name: migration_object_dependents :many
-- Return commands that drop a view or function with all views and functions that depend on it,
-- dependents first.
with recursive dependents (classid, objid, depth) as (
  select 'pg_proc'::regclass::oid, p.oid, 0
    from pg_proc p
   where p.pronamespace = 'public'::regnamespace and p.proname = :name
  union all
  select 'pg_class'::regclass::oid, c.oid, 0
    from pg_class c
   where c.relnamespace = 'public'::regnamespace and c.relname = :name and c.relkind = 'v'
  union all
  select case when r.oid is null then d.classid else 'pg_class'::regclass::oid end,
         coalesce(r.ev_class, d.objid),
         s.depth + 1
    from dependents s
    join pg_depend d on d.refclassid = s.classid
                    and d.refobjid = s.objid
                    and d.classid in ('pg_proc'::regclass, 'pg_rewrite'::regclass)
    left join pg_rewrite r on d.classid = 'pg_rewrite'::regclass and r.oid = d.objid
   where coalesce(r.ev_class, d.objid) <> s.objid
)
select i.name,
       format('drop %s %s', o.type, o.identity) as command
  from (select classid, objid, max(depth) as depth from dependents group by classid, objid) s
 cross join lateral pg_identify_object(s.classid, s.objid, 0) o
  join (select 'pg_proc'::regclass::oid as classid, oid as objid, proname as name from pg_proc
        union all
        select 'pg_class'::regclass::oid, oid, relname from pg_class) i using (classid, objid)
 order by s.depth desc, i.name;

-- name: migration_patience :value
-- Limit the wait for locks in this transaction, because later queries on a table queue behind a
-- change that waits.
select set_config('lock_timeout', '1s', true);

-- name: tenant_isolation_gaps :many
-- Return one row for each gap in the isolation of companies or accounts: a way to read or change
-- their rows, or to learn about them. Members of extensions are left out: an administrator has
-- installed them, and views of extensions run with their owner's rights.
with me as (
  select oid, rolname, rolsuper, rolbypassrls, rolreplication, rolcreaterole
    from pg_roles
   where rolname = current_user
), members as (
  select d.classid, d.objid from pg_depend d where d.deptype = 'e'
), relations as (
  select c.*
    from pg_class c
   where c.relnamespace = 'public'::regnamespace
     and ('pg_class'::regclass, c.oid) not in (select m.classid, m.objid from members m)
), fencing (place, relname, attname, owner, mine, named) as (
  -- How a table shows whose its rows are, the first that applies: a column, of one table or of any,
  -- the columns that name the owner, the condition of the policy, and the columns of a table that
  -- refers to such a row, if they have other names.
  values (1, 'companies', 'id', '{id}'::text[], '(id = current_company())', '{company_id}'::text[]),
         (2, 'accounts', 'id', '{id}', '(id = current_account())', '{account_id}'),
         (3, 'audit_log', 'company_id', '{company_id,account_id}',
          '(((company_id = current_company()) AND (account_id IS NULL))'
          ' OR ((account_id = current_account()) AND (company_id IS NULL)))', null),
         (4, null, 'owner_kind', '{owner_kind,owner_id}', '(owner_id = current_owner(owner_kind))',
          null),
         (5, null, 'account_id', '{account_id}', '(account_id = current_account())', null),
         (6, null, 'company_id', '{company_id}', '(company_id = current_company())', null)
), fenced as (
  select distinct on (c.oid) c.oid, c.relname, c.relrowsecurity and c.relforcerowsecurity as forced,
         k.owner, k.mine, coalesce(k.named, k.owner) as named
    from relations c
    join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
    join fencing k on k.attname = a.attname and coalesce(k.relname, c.relname) = c.relname
   where c.relkind in ('r', 'p', 'f')
   order by c.oid, k.place
), definers as (
  select p.oid, p.proname, p.proowner, p.proacl, p.proconfig
    from pg_proc p
   where p.prosecdef and p.pronamespace = 'public'::regnamespace
     and ('pg_proc'::regclass, p.oid) not in (select m.classid, m.objid from members m)
)
select format('the role %s may bypass row-level security', rolname) as gap
  from me
 where rolsuper or rolbypassrls or rolreplication or rolcreaterole
union all
select format('the role %s is a member of %s', me.rolname, m.roleid::regrole)
  from me
  join pg_auth_members m on m.member = me.oid
union all
select format('the role %s owns the table %s', me.rolname, c.relname)
  from me
  join relations c on c.relowner = me.oid and c.relkind in ('r', 'p', 'f', 'v', 'm')
union all
select format('the role %s may truncate the table %s', me.rolname, c.relname)
  from me
  join relations c on c.relkind in ('r', 'p') and has_table_privilege(me.oid, c.oid, 'truncate')
union all
select 'current_company(), current_account() or current_owner() has a value without a setting'
 where current_setting('app.company_id', true) is null
   and coalesce(current_company(), current_owner('company')) is not null
    or current_setting('app.account_id', true) is null
   and coalesce(current_account(), current_owner('account')) is not null
union all
select format('the table %s has no forced policy', f.relname)
  from fenced f
 where not (f.forced
            and exists (select
                          from pg_policy p
                         where p.polrelid = f.oid
                           and p.polname = 'own_rows'
                           and p.polcmd = '*'
                           and pg_get_expr(p.polqual, p.polrelid) = f.mine
                           and pg_get_expr(p.polwithcheck, p.polrelid) = f.mine))
union all
select format('the policy %s opens the table %s', p.polname, p.polrelid::regclass)
  from pg_policy p
 where p.polpermissive and p.polname <> 'own_rows'
   and exists (select
                 from unnest(p.polroles) r
                where r = 0 or pg_has_role(current_user, r, 'usage'))
union all
select format('the view %1$s does not use its caller''s rights (if it does not belong to the '
              'service: alter %2$s %1$I set schema another_schema)',
              c.relname, case c.relkind when 'm' then 'materialized view' else 'view' end)
  from relations c
 where c.relkind = 'v' and not coalesce(c.reloptions @> array['security_invoker=true'], false)
    or c.relkind = 'm' and has_table_privilege(current_user, c.oid, 'select')
union all
select format('the function %s runs with another''s rights and %s '
              '(if it does not belong to the service: alter function %s set schema another_schema)',
              d.proname,
              case when r.rolsuper or r.rolbypassrls then 'these bypass row-level security'
                   when d.proacl is null
                        or exists (select from aclexplode(d.proacl) x where x.grantee = 0)
                   then 'anybody may call it'
                   else 'uses the caller''s search path or temporary tables' end,
              d.oid::regprocedure)
  from definers d
  join pg_roles r on r.oid = d.proowner
 where has_function_privilege(current_user, d.oid, 'execute')
   and (r.rolsuper or r.rolbypassrls
        or d.proacl is null or exists (select from aclexplode(d.proacl) x where x.grantee = 0)
        or not exists (select
                         from unnest(d.proconfig) setting
                        where setting like 'search\_path=%pg\_temp'))
union all
select format('the foreign key %s of %s leaves out %s',
              k.conname, k.conrelid::regclass, array_to_string(f.named, ', '))
  from pg_constraint k
  join fenced f on f.oid = k.confrelid
 where k.contype = 'f'
   and not f.named <@ array(
         select h.attname::text
           from unnest(k.conkey, k.confkey) pair (here, there)
           join pg_attribute h on h.attrelid = k.conrelid and h.attnum = pair.here
           join pg_attribute t on t.attrelid = k.confrelid and t.attnum = pair.there
          where t.attname = any (f.owner))
union all
-- A unique index covers the rows of all owners: a violation by a value that a client chooses would
-- disclose that another owner has it.
select format('the unique index %s of %s does not begin with %s',
              i.indexrelid::regclass, f.relname, array_to_string(f.owner, ', '))
  from pg_index i
  join fenced f on f.oid = i.indrelid
 where i.indisunique
   and f.owner <> array(select pg_get_indexdef(i.indexrelid, place, true)
                          from generate_series(1, cardinality(f.owner)) place)
   and i.indexrelid <> coalesce(to_regclass('accounts_name_once'), 0)  -- An operator chooses it.
   -- The portal chooses uuids, and a response about a used one does not say who has it.
   and i.indexrelid <> coalesce(to_regclass('submitted_documents_uuid_once'), 0);

-- name: submission_locks_try :many
-- Lock submissions for this session. Returns the ids of those that were free.
select id
  from unnest(:ids::bigint[]) as wanted (id)
 where pg_try_advisory_lock(
         hashtextextended(format('submission %s %s', :company_id::bigint, id), 0));

-- name: submission_locks_release :many
select pg_advisory_unlock(hashtextextended(format('submission %s %s', :company_id::bigint, id), 0))
  from unnest(:ids::bigint[]) as held (id);

-- name: transaction_lock :exec
select pg_advisory_xact_lock(hashtextextended(:name, 0));

-- name: database_now :value
-- Return the database clock, by which the service judges all times, and so show that the connection
-- works.
select clock_timestamp();

-- name: session_heartbeat :one
-- Return the identity and the clock of this database, and the channels of which this session
-- receives notifications.
select database_identity() as identity, clock_timestamp() as at,
       array(select pg_listening_channels()) as channels;

-- name: cell_get :value
-- Return the name of the cell that this database is. No row without cells.
select name from cells;

-- name: owner_id_next :value
-- Return the id of a row of :owners, companies or accounts, that is about to be created, so that
-- row-level security can be set for it before it exists.
select coalesce((select id_base from cells), 0) + nextval(pg_get_serial_sequence(:owners, 'id'));

-- name: migration_cell_note :exec
insert into cells (name, id_base) values (:name, :id_base) on conflict do nothing;
