-- Failovers that lose nothing, after which sending is not held. There is no older version that runs
-- after this migration: it would send although evidence forbids it.

drop function if exists record_database_identity();

alter table database_identities
  add column standbys text[] not null default '{}',
  add column evidence bigint not null default 0,
  add column guarded_until timestamptz;
comment on column database_identities.standbys is
  'Standbys that had to confirm every commit at the latest evidence, in lower case.';
comment on column database_identities.evidence is
  'Number of the latest evidence that synchronous standbys confirm every commit.';
comment on column database_identities.guarded_until is
  'Until then nothing is sent that not all `standbys` have confirmed. Null: there was no evidence.';
