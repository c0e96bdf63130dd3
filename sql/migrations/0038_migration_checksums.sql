-- compatible: 0037
-- The digest of each file, which migrate adds to the table before the first migration.

comment on column schema_migrations.sha256 is
  'SHA-256 of the file as it was applied, or as it was when digests were introduced.';
