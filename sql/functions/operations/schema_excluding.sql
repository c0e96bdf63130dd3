-- A migration excludes the versions before the one that it is compatible with, or all earlier ones
-- if it names none. A version is the number of its newest migration. The service's login may not
-- read the table, which belongs to its owner.
create or replace function schema_excluding(known text[]) returns text
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select string_agg(m.name, ', ' order by m.name)
      from public.schema_migrations m
     where m.name <> all (known)
       and (m.compatible_with is null
            or m.compatible_with > (select max(left(k.name, 4)) from unnest(known) k (name)));
  end;
grant select on schema_migrations to einvoice_across;
call run_across_companies('schema_excluding');
comment on function schema_excluding is
  'Names of the applied migrations that exclude a version of the service, which has the known '
  'ones. Null: none does.';
