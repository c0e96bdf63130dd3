-- Times that lie ahead were recorded by the clock as it was before the step, and are moved back by
-- its length: due times, claims, tokens and pauses of the portal's limits. Otherwise nothing would
-- be claimed, polled or sent until the clock shows them again. A claim that ends too early is lost
-- to a newer fencing token, so that nothing is done twice.
--
-- Times of sends, requested cancellations and holds stay. The settling time is measured from them,
-- and the step may be undone.
--
-- The oldest write transaction of the server is noted, because the event feed and webhooks wait for
-- it; see 0005_events_and_webhooks.sql.
--
-- Times that were recorded after the step and before it was noticed are moved too. The step is at
-- least the difference from the time that was seen last.
create or replace function note_clock() returns interval
  volatile language plpgsql as $$
declare
  seen timestamptz;
  shift interval;
  now_at timestamptz;
  writer xid8 := case when pg_snapshot_xmin(pg_current_snapshot())
                           < pg_snapshot_xmax(pg_current_snapshot())
                      then pg_snapshot_xmin(pg_current_snapshot()) end;
begin
  select c.seen_at into seen from database_state c;
  if clock_timestamp() between seen and seen + interval '5 seconds' then
    return null;
  end if;
  select c.seen_at into seen from database_state c for update;
  now_at := clock_timestamp();
  shift := seen - now_at;
  if shift is null or shift < interval '10 seconds' then
    update database_state c
       set seen_at = now_at, oldest = writer,
           open_since = case when c.oldest = writer then c.open_since else now_at end;
    return null;
  end if;

  update submissions s
     set not_before = moved_back(s.not_before, shift, now_at),
         lease_until = moved_back(s.lease_until, shift, now_at)
   where s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted')
     and (s.not_before > now_at or s.lease_until > now_at);
  update submitted_documents d
     set cancelling_until = moved_back(d.cancelling_until, shift, now_at)
   where d.cancelling_until > now_at;
  update comparisons w
     set lease_until = moved_back(w.lease_until, shift, now_at),
         retry_at = moved_back(w.retry_at, shift, now_at),
         compared_at = moved_back(w.compared_at, shift, now_at)
   where greatest(w.lease_until, w.retry_at, w.compared_at) > now_at;
  update webhook_deliveries d
     set next_attempt_at = moved_back(d.next_attempt_at, shift, now_at),
         lease_until = moved_back(d.lease_until, shift, now_at)
   where d.status = 'Pending' and greatest(d.next_attempt_at, d.lease_until) > now_at;
  update refused_logins l
     set retry_at = moved_back(l.retry_at, shift, now_at)
   where l.retry_at > now_at;
  update portal_buckets b
     set paused_until = moved_back(b.paused_until, shift, now_at),
         taken = array(
           select moved_back(t.at, shift, now_at)
             from unnest(b.taken) with ordinality t (at, place)
            order by t.place),
         waiting_until = array(
           select moved_back(w.until, shift, now_at)
             from unnest(b.waiting_until) with ordinality w (until, place)
            order by w.place),
         expected_until = array(
           select moved_back(e.until, shift, now_at)
             from unnest(b.expected_until) with ordinality e (until, place)
            order by e.place);

  update database_state c
     set seen_at = now_at, stepped_at = now_at, stepped_by = shift,
         open_since = now_at;
  return shift;
end
$$;
call run_across_companies('note_clock');
comment on function note_clock is
  'Note the time and the oldest write transaction of the database. After a step backward, move the '
  'recorded times that lie ahead, and return the length of the step. Null: there was none.';
