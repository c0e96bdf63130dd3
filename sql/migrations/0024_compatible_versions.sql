-- compatible: 0020
-- Versions of the service before a migration may run with it if it allows that, so that an upgrade
-- needs no downtime. The column itself is created before the first migration is applied.

comment on column schema_migrations.compatible_with is
  'Number of the newest migration of the oldest version of the service that runs after this one. '
  'Null: versions without this migration do not run after it.';
