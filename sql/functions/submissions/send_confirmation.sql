-- It is read before and after the commit of an intent. If both are equal, the commit was confirmed
-- by every standby that is promoted without a hold.
create or replace function send_confirmation() returns text
  stable language sql
  begin atomic
    select case
             when i.guarded_until is null or i.guarded_until <= clock_timestamp()
             then 'not needed'
             when i.standbys <@ (synchronous_standbys() || server_name())
             then 'by ' || current_setting('synchronous_standby_names')
           end
      from database_state i;
  end;
comment on function send_confirmation is
  'Who confirms the commit of an intent now. Null: not all standbys of the latest '
  'evidence, so that nothing may be sent.';
