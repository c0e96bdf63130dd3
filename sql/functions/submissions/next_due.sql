-- Cancellations belong to the state Accepted. A leased submission became due earlier, so the first
-- hundred by `not_before` contain the next one.
create or replace function next_due(states text[] default null) returns interval
  stable language sql
  begin atomic
    select min(at) - clock_timestamp()
      from ((select greatest(s.not_before, s.lease_until) as at
               from submissions s
              where (s.state = 'Sending'
                     or (s.state = 'Queued'
                         and (s.on_absence <> 'retry' or s.first_sent_at is not null)))
                and (states is null or s.state = any (states))
                and not (s.state = 'Queued'
                         and exists (select
                                       from sending_holds x
                                      where x.company_id = s.company_id and x.released_at is null))
              order by s.not_before
              limit 100)
            union all
            (select greatest(s.not_before, s.lease_until)
               from submissions s
              where s.state = 'Accepted'
                and not s.has_outcome
                and (states is null or 'Accepted' = any (states))
              order by s.not_before
              limit 100)
            union all
            (select greatest(s.not_before, s.lease_until)
               from submissions s
              where s.state = 'Accepted'
                and s.has_outcome
                and (states is null or 'Accepted' = any (states))
              order by s.not_before
              limit 100)
            union all
            select min(h.due_at)
              from uncertain_heads() h
             where states is null or 'Uncertain' = any (states)
            union all
            select min(h.due_at)
              from unsent_heads() h
             where (states is null or 'Queued' = any (states))
               and not exists (select
                                 from sending_holds x
                                where x.company_id = h.company_id and x.released_at is null)
            union all
            select min(d.cancelling_until)
              from submitted_documents d
             where d.cancelling_until is not null
               and (states is null or 'Accepted' = any (states))) due;
  end;
call run_across_companies('next_due');
comment on function next_due is
  'Time until the next submission in one of the states, or cancellation, is due. Null when '
  'nothing waits.';
