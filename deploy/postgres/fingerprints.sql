-- Print the number of rows and a hash of all rows of every table of the service, to compare a restored database
-- with its original. Needs a superuser or a role with bypassrls:
--
--   psql -X -q -d einvoice -f deploy/postgres/fingerprints.sql

\pset format unaligned
\pset tuples_only on
set timezone = 'UTC';
set row_security = off;  -- An error instead of the rows of no company.

select format('select %L, count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) from %I t',
              relname, relname)
  from pg_class
 where relnamespace = 'public'::regnamespace and relkind = 'r'
   and not exists (select
                     from pg_depend d
                    where d.classid = 'pg_class'::regclass
                      and d.objid = pg_class.oid
                      and d.deptype = 'e')
 order by relname
\gexec
