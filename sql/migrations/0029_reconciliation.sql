-- Reconciliation in bounded batches, a count of crashes that is fair to submissions which were only listed, and a record of
-- portal data that could not be read.

-- The right of one process to look for a company's unknown outcomes. It is renewed while the listing is read, so that the
-- submissions themselves are claimed for a moment only.
create table reconciliations (
  company_id  bigint primary key references companies,
  fence       bigint not null default 0,
  lease_until timestamptz
);
call keep_companies_apart('reconciliations');
grant select, insert, update on reconciliations to einvoice_service;
create policy across_companies on reconciliations to einvoice_across using (true);
grant select on reconciliations to einvoice_across;
comment on table reconciliations is 'Which companies'' unknown outcomes are being looked for. One process does that for a company at a time.';
comment on column reconciliations.company_id is 'The company.';
comment on column reconciliations.fence is 'Grows with every claim. Whoever holds an older number has lost the claim.';
comment on column reconciliations.lease_until is 'The claim holds until then, unless it is renewed. Null: free.';

comment on column submissions.claims is
  'How often the handling of this very submission began since its last result. It grows when a process dies or fails in '
  'the middle, and not while the submission only waits for a listing.';

-- The Uncertain submissions of a company by the time at which they are due; and all else that is claimed one by one.
-- (submissions_waiting stays for the watchdog, which looks at both.)
drop index submissions_uncertain;
create index submissions_uncertain on submissions (company_id, not_before) where state = 'Uncertain';
create index submissions_claimable on submissions (not_before)
  where state in ('Sending', 'Accepted')
     or (state = 'Queued' and (on_absence <> 'retry' or first_sent_at is not null));

-- Of each company the Uncertain submission that is due first. While the company is being reconciled it is due when that
-- claim ends.
create function uncertain_heads() returns table (company_id bigint, id bigint, due_at timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    with recursive heads as (
      (select s.company_id, s.id, greatest(s.not_before, s.lease_until) as due_at
         from public.submissions s
        where s.state = 'Uncertain'
        order by s.company_id, s.not_before
        limit 1)
      union all
      select n.company_id, n.id, n.due_at
        from heads h
       cross join lateral (
               select s.company_id, s.id, greatest(s.not_before, s.lease_until) as due_at
                 from public.submissions s
                where s.state = 'Uncertain' and s.company_id > h.company_id
                order by s.company_id, s.not_before
                limit 1) n
    )
    select h.company_id, h.id, greatest(h.due_at, r.lease_until)
      from heads h
      left join public.reconciliations r on r.company_id = h.company_id;
  end;
alter function uncertain_heads() owner to einvoice_across;
revoke all on function uncertain_heads() from public;
comment on function uncertain_heads() is 'Of each company the Uncertain submission that is due first.';

-- Claims the work that is due, in the states that are asked for, or in all, for `lease`, with a new fence.
-- Of Uncertain submissions one a company, and none while the company is being reconciled: one listing answers for all of
-- them. That claim is not counted, since the submission itself is not handled yet.
-- Of what was never sent, one a company, whose last call is the longest ago first: however much one company has
-- waiting, the next call is another's.
-- A submission whose handling began before and gave no result may be what ends processes: at most `suspects` of those are
-- claimed, so that a process has one of them at a time and the next crash tells them apart.
drop function claim_submissions(interval, int, text[]);
create function claim_submissions(lease interval, most int, states text[] default null, suspects int default 1)
  returns table (company_id bigint, id bigint, fence bigint, state text, claims int)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with unsent as (
      select s.company_id, s.id, s.claims > 0 as is_suspect, coalesce(turn.at, '-infinity') as at
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
      select s.company_id, s.id, false as is_suspect, s.not_before as at
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
      select s.company_id, s.id, s.claims > 0 as is_suspect, s.not_before as at
        from public.submissions s
       where (s.state in ('Sending', 'Accepted')
              or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
         and (states is null or s.state = any (states))
         and not (s.state = 'Queued'
                  and exists (select from public.sending_holds x where x.company_id = s.company_id and x.released_at is null))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and (suspects > 0 or s.claims = 0)
       order by s.not_before
         for update skip locked
       limit most
    ), ranked as (
      select c.company_id, c.id, c.is_suspect, c.at, row_number() over (partition by c.is_suspect order by c.at) as place
        from (select u.company_id, u.id, u.is_suspect, u.at from unsent u
              union all
              select u.company_id, u.id, u.is_suspect, u.at from uncertain u
              union all
              select w.company_id, w.id, w.is_suspect, w.at from waiting w) c
    ), due as (
      select r.company_id, r.id
        from ranked r
       where not r.is_suspect or r.place <= suspects
       order by r.at
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
alter function claim_submissions(interval, int, text[], int) owner to einvoice_across;
revoke all on function claim_submissions(interval, int, text[], int) from public;
grant execute on function claim_submissions(interval, int, text[], int) to einvoice_service;
comment on function claim_submissions(interval, int, text[], int) is 'Claims work that is due, of any company.';

-- As in 0020, with the Uncertain submissions of a company that is being reconciled due when that claim ends: nobody is to
-- be woken for them before.
create or replace function next_due(states text[] default null) returns interval
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select min(at) - clock_timestamp()
      from (select min(greatest(s.not_before, s.lease_until)) as at
              from public.submissions s
             where (s.state in ('Sending', 'Accepted')
                    or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
               and (states is null or s.state = any (states))
               and not (s.state = 'Queued'
                        and exists (select from public.sending_holds x where x.company_id = s.company_id and x.released_at is null))
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

-- What the portal has shown and could not be read, or has a value that is not known. Each is kept once.
create table portal_odd_rows (
  company_id    bigint not null references companies,
  id            bigint generated always as identity,
  row_key       text not null,
  operation     text not null,
  tin           text not null,
  number        text,
  problems      text not null,
  shown         text not null,
  first_seen_at timestamptz not null default clock_timestamp(),
  last_seen_at  timestamptz not null default clock_timestamp(),
  times         bigint not null default 1,
  primary key (company_id, id),
  constraint portal_odd_rows_once unique (company_id, row_key),
  constraint portal_odd_rows_bounded check (length(row_key) <= 300 and length(problems) <= 1000 and length(shown) <= 4000)
);
call keep_companies_apart('portal_odd_rows');
grant select on portal_odd_rows to einvoice_service;
grant insert (company_id, row_key, operation, tin, number, problems, shown) on portal_odd_rows to einvoice_service;
grant update (operation, problems, shown, last_seen_at, times) on portal_odd_rows to einvoice_service;
create policy across_companies on portal_odd_rows to einvoice_across using (true);
grant select on portal_odd_rows to einvoice_across;
comment on table portal_odd_rows is 'Rows of the portal that could not be read, or have a value that is not known. They are skipped; everything else goes on.';
comment on column portal_odd_rows.company_id is 'The company for which the portal was asked.';
comment on column portal_odd_rows.id is 'Identifies the oddity.';
comment on column portal_odd_rows.row_key is 'The uuid of the document, or a hash of the row where the uuid cannot be read.';
comment on column portal_odd_rows.operation is 'The call that showed it last: search, submission or details.';
comment on column portal_odd_rows.tin is 'The taxpayer for which the portal was asked.';
comment on column portal_odd_rows.number is 'The document number that the row names, if it can be read.';
comment on column portal_odd_rows.problems is 'What is unknown or cannot be read, in words.';
comment on column portal_odd_rows.shown is 'The row as the portal sent it, shortened.';
comment on column portal_odd_rows.first_seen_at is 'When the portal showed it first.';
comment on column portal_odd_rows.last_seen_at is 'When the portal showed it last, to about a minute.';
comment on column portal_odd_rows.times is 'How often it was seen, counted at most once a minute.';

-- The oddities of all companies that the portal showed within a time, the oldest first.
create function portal_odd_rows_since(span interval)
  returns table (company_id bigint, id bigint, since timestamptz, facts jsonb)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select o.company_id, o.id, o.first_seen_at,
           jsonb_build_object('operation', o.operation, 'tin', o.tin, 'number', o.number, 'row_key', o.row_key,
                              'problems', o.problems, 'shown', o.shown, 'last_seen_at', o.last_seen_at, 'times', o.times)
      from public.portal_odd_rows o
     where o.last_seen_at > clock_timestamp() - span
     order by o.first_seen_at;
  end;
alter function portal_odd_rows_since(interval) owner to einvoice_across;
revoke all on function portal_odd_rows_since(interval) from public;
grant execute on function portal_odd_rows_since(interval) to einvoice_service;
comment on function portal_odd_rows_since(interval) is 'What the portal showed lately and could not be read, of all companies.';
