-- Read from the catalogue, so that no new table is left out; tables of extensions are. What an
-- account owns stays with it.
create or replace function company_tables()
  returns table (oid oid, name text, owner_column text)
  stable set search_path = pg_catalog, public language sql
  begin atomic
    select c.oid, c.relname::text, a.attname::text
      from pg_class c
      join pg_attribute a
        on a.attrelid = c.oid
       and not a.attisdropped
       and a.attname = case c.relname when 'companies' then 'id' else 'company_id' end
     where c.relnamespace = 'public'::regnamespace
       and c.relkind in ('r', 'p')
       and not c.relispartition
       and not exists (select
                         from pg_depend d
                        where d.classid = 'pg_class'::regclass
                          and d.objid = c.oid
                          and d.deptype = 'e')
       and c.relname <> all (array['company_moves', 'organization_companies']);
  end;
comment on function company_tables is
  'Tables whose rows belong to companies and move with them, and the column with the company.';
