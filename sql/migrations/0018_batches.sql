-- Calls of many documents: what was never sent is merged, what was refused as a whole is split; and the portal's quotas.

-- A document may change from call to call. Merged: it left before anything was sent. Split: the portal refused all of
-- the call, which is tried in parts. A part can also hold what the portal has not got of a call that it took in part.
alter table submissions
  add column merged_into bigint,
  add column split_from bigint,
  add constraint submissions_merged_into foreign key (company_id, merged_into) references submissions (company_id, id),
  add constraint submissions_split_from foreign key (company_id, split_from) references submissions (company_id, id),
  drop constraint submissions_state,
  add constraint submissions_state check (state in
    ('Queued', 'Merged', 'Sending', 'Uncertain', 'Accepted', 'Finished', 'Split', 'Refused', 'NotReceived', 'NeedsPerson')),
  drop constraint submissions_sent_before_known,
  add constraint submissions_sent_before_known check
    (state in ('Queued', 'Merged', 'NotReceived', 'NeedsPerson') or last_sent_at is not null),
  add constraint submissions_merged_unsent check
    ((state = 'Merged') = (merged_into is not null) and (state <> 'Merged' or first_sent_at is null));

-- The bytes of a call, and what was promised about it, are written once: the service has no right to change them.
revoke update on submissions from einvoice_service;
grant update (state, fence, lease_until, not_before, claims, sends, looks, absence_confirmations, absence_confirmed_at, first_sent_at,
              last_sent_at, submission_uid, last_error, merged_into, updated_at) on submissions to einvoice_service;

alter table submitted_documents
  add column earlier_submissions bigint[] not null default '{}';  -- calls that were sent with it and that it has left

-- Answers name documents by number: a call has each number once.
create unique index submitted_documents_number_once_a_call on submitted_documents (company_id, submission_id, number);
drop index submitted_documents_by_submission;

-- What was promised to be sent and never was, in the order in which it came: it may still be merged.
create index submissions_unsent on submissions (company_id, id)
  where state = 'Queued' and on_absence = 'retry' and first_sent_at is null;
-- All else that waits for something.
create index submissions_waiting on submissions (not_before)
  where state in ('Sending', 'Uncertain', 'Accepted')
     or (state = 'Queued' and (on_absence <> 'retry' or first_sent_at is not null));
drop index submissions_due;
create index submissions_turn on submissions (company_id, last_sent_at) where last_sent_at is not null;

-- The oldest unsent submission of each company, which holds up those behind it: when it fails, or is being prepared,
-- they wait with it, so that a company logs in and fills a call once and not for each of its documents. Those that
-- requests are sending themselves (leased without a claim) are nobody's head.
create function unsent_heads() returns table (company_id bigint, id bigint, due_at timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    with recursive heads as (
      (select s.company_id, s.id, greatest(s.not_before, s.lease_until) as due_at
         from public.submissions s
        where s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null
          and (s.claims > 0 or s.lease_until is null or s.lease_until < clock_timestamp())
        order by s.company_id, s.id
        limit 1)
      union all
      select n.company_id, n.id, n.due_at
        from heads h
       cross join lateral (
               select s.company_id, s.id, greatest(s.not_before, s.lease_until) as due_at
                 from public.submissions s
                where s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null
                  and (s.claims > 0 or s.lease_until is null or s.lease_until < clock_timestamp())
                  and s.company_id > h.company_id
                order by s.company_id, s.id
                limit 1) n
    )
    select h.company_id, h.id, h.due_at from heads h;
  end;
alter function unsent_heads() owner to einvoice_across;
revoke all on function unsent_heads() from public;

-- The work that is due, in the states that are asked for, or in all: claims it for `lease` and gives it a new fence.
-- Of a company's Uncertain ones the first, and none while one is held: who has it takes the others up, since one listing
-- resolves them all.
-- Of what was never sent, one a company, whose last call is the longest ago first: however much one company has
-- waiting, the next call is another's.
drop function claim_submissions(interval, int);
create function claim_submissions(lease interval, most int, states text[] default null)
  returns table (company_id bigint, id bigint, fence bigint, state text, claims int)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with unsent as (
      select s.company_id, s.id, coalesce(turn.at, '-infinity') as at
        from public.unsent_heads() h
        join public.submissions s on s.company_id = h.company_id and s.id = h.id
       cross join lateral (select max(t.last_sent_at) as at
                             from public.submissions t
                            where t.company_id = h.company_id and t.last_sent_at is not null) turn
       where (states is null or 'Queued' = any (states))
         and h.due_at <= clock_timestamp()
         and s.state = 'Queued'
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
       order by turn.at nulls first, h.due_at
         for update of s skip locked
       limit most
    ), waiting as (
      select s.company_id, s.id, s.not_before as at
        from public.submissions s
       where (s.state in ('Sending', 'Uncertain', 'Accepted')
              or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
         and (states is null or s.state = any (states))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and not (s.state = 'Uncertain'
                  and exists (select
                                from public.submissions o
                               where o.company_id = s.company_id and o.state = 'Uncertain'
                                 and (o.lease_until >= clock_timestamp()
                                      or o.id < s.id and o.not_before <= clock_timestamp())))
       order by s.not_before
         for update skip locked
       limit most
    ), due as (
      select u.company_id, u.id, u.at from unsent u
      union all
      select w.company_id, w.id, w.at from waiting w
      order by at
      limit most
    )
    update public.submissions s
       set fence = s.fence + 1, claims = s.claims + 1, lease_until = clock_timestamp() + lease
      from due
     where s.company_id = due.company_id and s.id = due.id
    returning s.company_id, s.id, s.fence, s.state, s.claims;
  end;
alter function claim_submissions(interval, int, text[]) owner to einvoice_across;
revoke all on function claim_submissions(interval, int, text[]) from public;
grant execute on function claim_submissions(interval, int, text[]) to einvoice_service;

-- In how long the next submission in one of the states falls due, or a cancellation, which is looked at where Accepted
-- ones are; null when nothing waits.
drop function next_due();
create function next_due(states text[] default null) returns interval
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select min(at) - clock_timestamp()
      from (select min(greatest(s.not_before, s.lease_until)) as at
              from public.submissions s
             where (s.state in ('Sending', 'Uncertain', 'Accepted')
                    or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
               and (states is null or s.state = any (states))
            union all
            select min(h.due_at) from public.unsent_heads() h where states is null or 'Queued' = any (states)
            union all
            select min(d.cancelling_until)
              from public.submitted_documents d
             where d.cancelling_until is not null and (states is null or 'Accepted' = any (states))) due;
  end;
alter function next_due(text[]) owner to einvoice_across;
revoke all on function next_due(text[]) from public;
grant execute on function next_due(text[]) to einvoice_service;

-- The portal's quotas: a bucket of tokens for each client id and operation, of some also for each taxpayer. Shared by
-- all companies and processes. `taken` has when each token was last taken, oldest first; one that a request is still
-- waiting for lies in the future.
create table portal_buckets (
  client_id text not null,
  operation text not null,
  taxpayer  text not null,  -- '' where all taxpayers share it
  taken     timestamptz[] not null,
  primary key (client_id, operation, taxpayer)
) with (fillfactor = 50);
grant select, insert, update on portal_buckets to einvoice_service;

-- From when on a bucket lets a call through that shall be at most the `most`-th within `span`.
create function token_at(taken timestamptz[], most int, span interval) returns timestamptz
  stable parallel safe language sql
  return taken[cardinality(taken) - most + 1] + span;
