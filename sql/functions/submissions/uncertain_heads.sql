-- While the company is being compared, it is due when that claim ends.
-- A recursive query instead of a grouped one: it reads one index entry for each company.
create or replace function uncertain_heads() returns table (company_id bigint, due_at timestamptz)
  stable language sql
  begin atomic
    with recursive heads (company_id, due_at) as (
      select 0::bigint, null::timestamptz
      union all
      select n.company_id, n.due_at
        from heads h
       cross join lateral (
               select s.company_id, greatest(s.not_before, s.lease_until) as due_at
                 from submissions s
                where s.state = 'Uncertain' and s.company_id > h.company_id
                order by s.company_id, s.not_before
                limit 1) n
    )
    select h.company_id, greatest(h.due_at, w.lease_until)
      from heads h
      left join comparisons w on w.company_id = h.company_id
     where h.due_at is not null;
  end;
call run_across_companies('uncertain_heads', for_service => false);
comment on function uncertain_heads is
  'For each company the time at which the outcome of a submission can be looked up next.';
