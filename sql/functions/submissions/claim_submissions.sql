-- Claims submissions in the states that are named, or in all states if null.
--
-- Uncertain ones are claimed within the comparison of their company, since one listing decides all
-- of them.
-- Never sent: one for each company, the company whose latest send is the longest ago first.
-- Polls for an outcome: the first of each company before the second of any, with companies chosen
-- at random where many have some. Polls for later changes come last.
--
-- A submission whose handling began before and gave no result may be the one that crashes
-- processes. At most `suspects` of those are claimed, so that a process works on one of them at a
-- time and the next crash identifies it.
--
-- In another database than the noted one, nothing is claimed: its rows may be older than what was
-- sent, so that no result may follow from them before the hold.
create or replace function claim_submissions(
    lease interval, most int, states text[] default null, suspects int default 1)
  returns table (company_id bigint, id bigint, fence bigint, state text, claims int)
  volatile language sql
  begin atomic
    -- A recursive query instead of a grouped one: it reads one index entry for each company.
    with recursive poll_heads (company_id, not_before) as (
      select 0::bigint, 'infinity'::timestamptz
      union all
      select n.company_id, n.not_before
        from poll_heads h
       cross join lateral (
               select s.company_id, s.not_before
                 from submissions s
                where s.state = 'Accepted' and not s.has_outcome and s.company_id > h.company_id
                order by s.company_id, s.not_before
                limit 1) n
    ), unsent as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, 1 as place
        from unsent_heads() h
        join submissions s on s.company_id = h.company_id and s.id = h.id
       cross join lateral (select max(t.last_sent_at) as at
                             from submissions t
                            where t.company_id = h.company_id and t.last_sent_at is not null) turn
       where (states is null or 'Queued' = any (states))
         and h.due_at <= clock_timestamp()
         and not exists (select
                           from sending_holds x
                          where x.company_id = h.company_id and x.released_at is null)
         and s.state = 'Queued'
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by turn.at nulls first, h.due_at
         for update of s skip locked
       limit most
    ), waiting as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, 1 as place
        from submissions s
       where (s.state = 'Sending'
              or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
         and (states is null or s.state = any (states))
         and not (s.state = 'Queued'
                  and exists (select
                                from sending_holds x
                               where x.company_id = s.company_id and x.released_at is null))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by s.not_before
         for update skip locked
       limit most
    ), polls as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, next.place
        from (select d.company_id
                from poll_heads d
               where d.not_before <= clock_timestamp()
               order by random()
               limit 4 * most) h
       cross join lateral (
               select p.id, row_number() over (order by p.not_before) as place
                 from submissions p
                where p.company_id = h.company_id and p.state = 'Accepted' and not p.has_outcome
                  and p.not_before <= clock_timestamp()
                  and (p.lease_until is null or p.lease_until < clock_timestamp())
                  and (suspects > 0 or p.claims = 0)
                order by p.not_before
                limit most) next
        join submissions s on s.company_id = h.company_id and s.id = next.id
       where (states is null or 'Accepted' = any (states))
         and s.state = 'Accepted' and not s.has_outcome
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
       order by next.place, random()
         for update of s skip locked
       limit most
    ), rechecks as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, null::bigint as place
        from submissions s
       where s.state = 'Accepted' and s.has_outcome
         and (states is null or 'Accepted' = any (states))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by s.not_before
         for update skip locked
       limit most
    ), ranked as (
      select c.company_id, c.id, c.is_suspect, c.place,
             row_number() over (partition by c.is_suspect order by c.place) as rank
        from (select u.company_id, u.id, u.is_suspect, u.place from unsent u
              union all
              select w.company_id, w.id, w.is_suspect, w.place from waiting w
              union all
              select p.company_id, p.id, p.is_suspect, p.place from polls p
              union all
              select r.company_id, r.id, r.is_suspect, r.place from rechecks r) c
    ), due as (
      select r.company_id, r.id
        from ranked r
       where (not r.is_suspect or r.rank <= suspects)
         and database_identity() = (select i.identity from database_state i)
       order by r.place nulls last, random()
       limit most
    )
    update submissions s
       set fence = next_fence(s.fence),
           claims = s.claims + 1,
           lease_until = clock_timestamp() + lease
      from due
     where s.company_id = due.company_id and s.id = due.id
    returning s.company_id, s.id, s.fence, s.state, s.claims;
  end;
call run_across_companies('claim_submissions');
comment on function claim_submissions is
  'Claim due submissions of any company for `lease`, with a new fencing token.';
