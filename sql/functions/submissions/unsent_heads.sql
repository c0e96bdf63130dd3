-- The oldest submission of a company blocks those after it: while it fails or is being prepared,
-- they wait with it, so that a company logs in and fills a request once and not for each document.
-- Submissions that a client request sends itself (leased without a claim) are left out.
-- A recursive query instead of a grouped one: it reads one index entry for each company.
create or replace function unsent_heads()
  returns table (company_id bigint, id bigint, due_at timestamptz)
  stable language sql
  begin atomic
    with recursive heads (company_id, id, due_at) as (
      select 0::bigint, null::bigint, null::timestamptz
      union all
      select n.company_id, n.id, n.due_at
        from heads h
       cross join lateral (
               select s.company_id, s.id, greatest(s.not_before, s.lease_until) as due_at
                 from submissions s
                where s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null
                  and (s.claims > 0 or s.lease_until is null or s.lease_until < clock_timestamp())
                  and s.company_id > h.company_id
                order by s.company_id, s.id
                limit 1) n
    )
    select h.company_id, h.id, h.due_at from heads h where h.id is not null;
  end;
call run_across_companies('unsent_heads', for_service => false);
comment on function unsent_heads is
  'For each company the oldest submission that was promised and never sent.';
