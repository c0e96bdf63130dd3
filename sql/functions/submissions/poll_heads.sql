-- A recursive query instead of a grouped one: it reads one index entry for each company.
create or replace function poll_heads() returns table (company_id bigint, due_at timestamptz)
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
call run_across_companies('poll_heads', for_service => false);
comment on function poll_heads is
  'For each company the time at which its next poll for an outcome is due.';
