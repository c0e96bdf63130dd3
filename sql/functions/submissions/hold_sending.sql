-- A hold that has not ended begins again, because the rows may have changed; it keeps the earlier
-- `known_until`, or null if one is null.
--
-- An Uncertain submission counts as sent until now, because lost transactions may have sent it
-- again: listings before the hold confirm no absence, and claims from before are void.
create or replace function hold_sending(why text, known_until timestamptz default null)
  returns bigint
  volatile language sql
  begin atomic
    with held as (
      insert into sending_holds as h (company_id, reason, known_until)
      select c.id, hold_sending.why, hold_sending.known_until
        from companies c
       order by c.id
          on conflict (company_id) where released_at is null do update
         set since = clock_timestamp(),
             reason = excluded.reason,
             known_until = case when h.known_until is not null and excluded.known_until is not null
                                then least(h.known_until, excluded.known_until) end
      returning company_id, xmax = 0 as is_new
    ), uncertain as (
      update submissions s
         set last_sent_at = clock_timestamp(), absence_confirmations = 0,
             absence_confirmed_at = null, fence = next_fence(s.fence), lease_until = null
        from held h
       where s.company_id = h.company_id and s.state = 'Uncertain'
    )
    select count(*) from held where is_new;
  end;
call run_across_companies('hold_sending');
comment on function hold_sending is
  'Hold sending for every company here. `known_until` is a time before which the database has '
  'recorded everything that was sent. Returns the number of new holds.';
