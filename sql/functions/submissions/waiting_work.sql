-- Every scrape of the metrics calls this. Submissions are read by their partial indexes, one for
-- each state. Accepted submissions whose documents all have an outcome are left out: they are
-- polled for later changes only, and there can be as many as invoices of three days.
create or replace function waiting_work()
  returns table (
    subject text, state text, n bigint, due bigint, due_for interval, age interval)
  stable set plan_cache_mode = force_custom_plan language sql
  begin atomic
    with waiting as (
      select s.state,
             case s.state when 'NeedsPerson' then s.updated_at else s.created_at end as since,
             case when s.state <> 'NeedsPerson' then greatest(s.not_before, s.lease_until) end
               as due_at
        from submissions s
       where (s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null)
          or s.state = 'Sending'
          or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null))
          or s.state = 'Uncertain'
          or (s.state = 'Accepted' and not s.has_outcome)
          or s.state = 'NeedsPerson'
    )
    select 'submissions',
           v.state,
           count(w.state),
           count(*) filter (where w.due_at <= clock_timestamp()),
           clock_timestamp() - min(w.due_at),
           clock_timestamp() - min(w.since)
      from (values ('Queued'), ('Sending'), ('Uncertain'), ('Accepted'), ('NeedsPerson')) v (state)
      left join waiting w on w.state = v.state
     group by v.state
    union all
    select 'webhook_deliveries',
           null,
           count(*),
           count(*) filter (where d.next_attempt_at <= clock_timestamp()),
           clock_timestamp() - min(d.next_attempt_at),
           null
      from webhook_endpoints e
      join webhook_deliveries d on d.company_id = e.company_id and d.endpoint_id = e.id
     where e.enabled and d.status = 'Pending';
  end;
call run_across_companies('waiting_work');
comment on function waiting_work is
  'Number, due number and age of the submissions and webhook deliveries that wait, of all '
  'companies. For the metrics.';
