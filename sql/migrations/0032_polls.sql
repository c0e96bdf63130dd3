-- Polls are fair between companies, and outcomes come before later changes.
--
-- An Accepted submission is polled for its outcome, and while its documents can be cancelled it is polled again from time to
-- time. A portal allows few polls a minute: without this order a company with thousands of submissions, or the later
-- polls of all companies together, would delay the first outcome of a new submission.

alter table submissions add column has_outcome boolean not null default false;
grant update (has_outcome) on submissions to einvoice_service;
comment on column submissions.has_outcome is
  'Whether an Accepted submission has no document left whose outcome is unknown, so that it is polled for later changes only.';
update submissions s
   set has_outcome = true
 where s.state = 'Accepted'
   and not exists (select
                     from submitted_documents d
                    where d.company_id = s.company_id and d.submission_id = s.id and d.status = 'Submitted');

drop index submissions_claimable;
create index submissions_claimable on submissions (not_before)
  where state = 'Sending' or (state = 'Queued' and (on_absence <> 'retry' or first_sent_at is not null));
create index submissions_polls on submissions (not_before) where state = 'Accepted' and not has_outcome;
create index submissions_polls_of_company on submissions (company_id, not_before) where state = 'Accepted' and not has_outcome;
create index submissions_rechecks on submissions (not_before) where state = 'Accepted' and has_outcome;

-- The companies that have a submission to poll for its outcome, each with the time at which its first one is due.
create function poll_heads() returns table (company_id bigint, due_at timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    with recursive heads as (
      (select s.company_id, s.not_before
         from public.submissions s
        where s.state = 'Accepted' and not s.has_outcome
        order by s.company_id, s.not_before
        limit 1)
      union all
      select n.company_id, n.not_before
        from heads h
       cross join lateral (
               select s.company_id, s.not_before
                 from public.submissions s
                where s.state = 'Accepted' and not s.has_outcome and s.company_id > h.company_id
                order by s.company_id, s.not_before
                limit 1) n
    )
    select h.company_id, h.not_before from heads h;
  end;
alter function poll_heads() owner to einvoice_across;
revoke all on function poll_heads() from public;
comment on function poll_heads() is 'Of each company the time at which its next poll for an outcome is due.';

-- Claims the work that is due, in the states that are asked for, or in all, for `lease`, with a new fence.
-- Of Uncertain submissions one a company, and none while the company is being reconciled: one listing answers for all of
-- them. That claim is not counted, since the submission itself is not handled yet.
-- Of submissions that were never sent one a company, that of the company whose last call is the longest ago first.
-- Of polls for an outcome the first of each company before the second of any, with companies drawn where many have some;
-- polls for later changes come last.
-- A submission whose handling began before and gave no result may be what ends processes: at most `suspects` of those are
-- claimed, so that a process has one of them at a time and the next crash tells them apart.
create or replace function claim_submissions(lease interval, most int, states text[] default null, suspects int default 1)
  returns table (company_id bigint, id bigint, fence bigint, state text, claims int)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with unsent as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, 1 as place
        from public.unsent_heads() h
        join public.submissions s on s.company_id = h.company_id and s.id = h.id
       cross join lateral (select max(t.last_sent_at) as at
                             from public.submissions t
                            where t.company_id = h.company_id and t.last_sent_at is not null) turn
       where (states is null or 'Queued' = any (states))
         and h.due_at <= clock_timestamp()
         and not exists (select from public.sending_holds x where x.company_id = h.company_id and x.released_at is null)
         and s.state = 'Queued'
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by turn.at nulls first, h.due_at
         for update of s skip locked
       limit most
    ), uncertain as (
      select s.company_id, s.id, false as is_suspect, 1 as place
        from public.uncertain_heads() h
        join public.submissions s on s.company_id = h.company_id and s.id = h.id
       where (states is null or 'Uncertain' = any (states))
         and h.due_at <= clock_timestamp()
         and s.state = 'Uncertain'
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
       order by s.not_before
         for update of s skip locked
       limit most
    ), waiting as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, 1 as place
        from public.submissions s
       where (s.state = 'Sending' or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
         and (states is null or s.state = any (states))
         and not (s.state = 'Queued'
                  and exists (select from public.sending_holds x where x.company_id = s.company_id and x.released_at is null))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by s.not_before
         for update skip locked
       limit most
    ), polls as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, next.place
        from (select d.company_id
                from public.poll_heads() d
               where d.due_at <= clock_timestamp()
               order by random()
               limit 4 * most) h
       cross join lateral (
               select p.id, row_number() over (order by p.not_before) as place
                 from public.submissions p
                where p.company_id = h.company_id and p.state = 'Accepted' and not p.has_outcome
                  and p.not_before <= clock_timestamp()
                  and (p.lease_until is null or p.lease_until < clock_timestamp())
                  and (suspects > 0 or p.claims = 0)
                order by p.not_before
                limit most) next
        join public.submissions s on s.company_id = h.company_id and s.id = next.id
       where (states is null or 'Accepted' = any (states))
         and s.state = 'Accepted' and not s.has_outcome
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
       order by next.place, random()
         for update of s skip locked
       limit most
    ), rechecks as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, null::bigint as place
        from public.submissions s
       where s.state = 'Accepted' and s.has_outcome
         and (states is null or 'Accepted' = any (states))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by s.not_before
         for update skip locked
       limit most
    ), ranked as (
      select c.company_id, c.id, c.is_suspect, c.place, row_number() over (partition by c.is_suspect order by c.place) as rank
        from (select u.company_id, u.id, u.is_suspect, u.place from unsent u
              union all
              select u.company_id, u.id, u.is_suspect, u.place from uncertain u
              union all
              select w.company_id, w.id, w.is_suspect, w.place from waiting w
              union all
              select p.company_id, p.id, p.is_suspect, p.place from polls p
              union all
              select r.company_id, r.id, r.is_suspect, r.place from rechecks r) c
    ), due as (
      select r.company_id, r.id
        from ranked r
       where not r.is_suspect or r.rank <= suspects
       order by r.place nulls last, random()
       limit most
    )
    update public.submissions s
       set fence = s.fence + 1,
           claims = s.claims + (s.state <> 'Uncertain')::int,
           lease_until = clock_timestamp() + lease
      from due
     where s.company_id = due.company_id and s.id = due.id
    returning s.company_id, s.id, s.fence, s.state, s.claims;
  end;

-- As in 0029. What is leased has become due before, so that the first hundred by `not_before` have the next one.
create or replace function next_due(states text[] default null) returns interval
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select min(at) - clock_timestamp()
      from ((select greatest(s.not_before, s.lease_until) as at
               from public.submissions s
              where (s.state = 'Sending' or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
                and (states is null or s.state = any (states))
                and not (s.state = 'Queued'
                         and exists (select from public.sending_holds x where x.company_id = s.company_id and x.released_at is null))
              order by s.not_before
              limit 100)
            union all
            (select greatest(s.not_before, s.lease_until)
               from public.submissions s
              where s.state = 'Accepted' and not s.has_outcome and (states is null or 'Accepted' = any (states))
              order by s.not_before
              limit 100)
            union all
            (select greatest(s.not_before, s.lease_until)
               from public.submissions s
              where s.state = 'Accepted' and s.has_outcome and (states is null or 'Accepted' = any (states))
              order by s.not_before
              limit 100)
            union all
            select min(h.due_at) from public.uncertain_heads() h where states is null or 'Uncertain' = any (states)
            union all
            select min(h.due_at)
              from public.unsent_heads() h
             where (states is null or 'Queued' = any (states))
               and not exists (select from public.sending_holds x where x.company_id = h.company_id and x.released_at is null)
            union all
            select min(d.cancelling_until)
              from public.submitted_documents d
             where d.cancelling_until is not null and (states is null or 'Accepted' = any (states))) due;
  end;
