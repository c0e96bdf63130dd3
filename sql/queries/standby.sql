-- Positions in the write-ahead log, by which a read on a standby shows all earlier writes. A
-- position is a number of bytes.

-- name: primary_position :one
-- Return the position up to which the log is on disk, or without synchronous commits up to which it
-- is written: no transaction that was committed before now is later. Return the noted identity of
-- the database too, and whether it is that of the current timeline: it is not between a failover
-- and the next note. No row before the first note.
select (case current_setting('synchronous_commit')
          when 'off' then pg_current_wal_insert_lsn()
          else pg_current_wal_flush_lsn()
        end - '0/0'::pg_lsn)::bigint as position,
       identity,
       split_part(identity, '/', 2) = left(pg_walfile_name(pg_current_wal_lsn()), 8) as is_current
  from database_state
 where identity is not null;

-- name: standby_position :one
-- Return a text that distinguishes a standby from others behind the same address, the position that
-- it has replayed, the identity of the database as replayed, null before the first note, and
-- whether the server is still a standby. Statements that begin later see all that was replayed.
select concat_ws(' ', inet_server_addr(), inet_server_port(), pg_postmaster_start_time()) as name,
       (coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0'::pg_lsn)::bigint as position,
       (select identity from database_state) as identity,
       pg_is_in_recovery() as is_standby;
