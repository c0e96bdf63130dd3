-- Failovers that lose nothing, after which sending is not held. There is no older version that runs
-- after this migration: it would send although a proof forbids it.

drop function if exists record_database_identity();

alter table database_identities
  add column standbys text[] not null default '{}',
  add column proof bigint not null default 0,
  add column guarded_until timestamptz;
comment on column database_identities.standbys is
  'Standbys that had to confirm every commit at the latest proof, in lower case.';
comment on column database_identities.proof is
  'Number of the latest proof that synchronous standbys confirm every commit.';
comment on column database_identities.guarded_until is
  'Until then nothing is sent that not all `standbys` have confirmed. Null: there was no proof.';
