create or replace function database_identity() returns text
  stable language sql
  begin atomic
    select format('%s/%s/%s/%s',
                  s.system_identifier,
                  left(pg_walfile_name(pg_current_wal_lsn()), 8),
                  d.oid,
                  'database_state'::regclass::oid)
      from pg_control_system() s, pg_database d
     where d.datname = current_database();
  end;
comment on function database_identity is
  'Identity of this database: cluster, timeline, database and table. Any copy of the rows has '
  'another one.';
