-- The service's login may not read the tables of migrations, which belong to their owner.
create or replace function schema_is_applied(version bytea) returns boolean
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select exists (select from public.schema_versions v where v.sha256 = version);
  end;
grant select on schema_versions to einvoice_across;
call run_across_companies('schema_is_applied');
comment on function schema_is_applied is
  'Whether a version of the schema was applied to this database: its migrations, views and '
  'functions. A later version may have followed.';
