-- While evidence can end a failover without a hold, an intent needs the confirmation of its
-- standbys. Other standbys can therefore be proven only when that time is over, or if they confirm
-- for the former ones too. A server that was promoted confirms by itself.
create or replace function record_evidence() returns table (identity text, evidence bigint)
  volatile rows 1 language sql
  begin atomic
    update database_state i
       set standbys = c.names, evidence = i.evidence + 1,
           guarded_until = clock_timestamp() + interval '75 seconds'
      from (select synchronous_standbys() as names, server_name() as here) c
     where i.identity = database_identity()
       and c.names <> '{}'
       and c.here <> all (c.names)
       and (i.standbys <@ (c.names || c.here)
            or i.guarded_until is null
            or i.guarded_until <= clock_timestamp())
    returning i.identity, i.evidence;
  end;
call run_across_companies('record_evidence');
comment on function record_evidence is
  'Record evidence that named synchronous standbys confirm every commit. Returns the identity of '
  'the database and the number of the evidence. No row: they do not, or this server has no name.';
