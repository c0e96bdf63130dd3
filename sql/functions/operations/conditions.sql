-- Each condition has a branch here, and its wording in service/monitoring/conditions.csv. It reads
-- the tables and shares no code with the claims of the workers. A state that is normal for a moment
-- is a condition when it lasts longer than `age`.
--
-- Every process calls this every half minute. Submissions are read by their partial indexes. Of the
-- accepted ones whose documents have an outcome, which can be as many as invoices of three days,
-- only the overdue ones are read.
--
-- A submission that is Queued again has the cause in last_error, with its beginning: the portal
-- could not be reached, or the clocks differ. A held company without a verified TIN could send
-- nothing anyway. A company is due to be compared while documents may have changed since its latest
-- comparison, or since its first send if it never was: for 74 hours after they were sent. Those of
-- more than 30 days ago are not listed.
create or replace function conditions(
    age interval, grace interval, settle interval, confirmation_gap interval, every interval)
  returns table (subject text, kind text, n bigint, since timestamptz)
  stable set plan_cache_mode = force_custom_plan language sql
  begin atomic
    with held as (
      select h.company_id, h.since, c.tin <> '' and c.tin_verified_at is not null as can_send
        from sending_holds h
        join companies c on c.id = h.company_id
       where h.released_at is null
    ), sending as (
      select s.company_id,
             s.state,
             greatest(s.not_before, s.lease_until) as due_at,
             s.lease_until,
             s.last_sent_at,
             s.has_outcome
        from submissions s
       where (s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null)
          or s.state = 'Sending'
          or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null))
          or s.state = 'Uncertain'
          or (s.state = 'Accepted' and not s.has_outcome)
          or (s.state = 'Accepted' and s.has_outcome
              and s.not_before < statement_timestamp() - grace)
    ), found (subject, kind, n, since) as (
      select 'overdue',
             s.state,
             1,
             case when s.due_at < clock_timestamp() - grace then s.due_at else s.last_sent_at end
        from sending s
       where (s.due_at < clock_timestamp() - grace
              and (s.state <> 'Queued'
                   or not exists (select from held h where h.company_id = s.company_id)))
          or (s.state in ('Sending', 'Uncertain')
              and s.last_sent_at + settle + 2 * confirmation_gap < clock_timestamp() - 3 * grace)
      union all
      select 'overdue', 'Cancellation', 1, o.due_at
        from submitted_documents d
       cross join lateral (
               select least(d.cancelling_until,
                            coalesce(d.cancel_sent_by, d.cancellation_requested_at) + settle)
                      as due_at) o
       where d.cancelling_until is not null and o.due_at < clock_timestamp() - grace
      union all
      select 'overdue', 'Delivery', 1, o.due_at
        from webhook_endpoints e
       cross join lateral (select min(greatest(w.next_attempt_at, w.lease_until)) as due_at
                             from webhook_deliveries w
                            where w.company_id = e.company_id
                              and w.endpoint_id = e.id
                              and w.status = 'Pending') o
       where e.enabled and o.due_at < clock_timestamp() - grace
      union all
      select 'overdue', 'Comparison', 1, coalesce(w.compared_at, sent.at)
        from companies c
        left join comparisons w on w.company_id = c.id
       cross join lateral (select min(s.last_sent_at) as at
                             from submissions s
                            where s.company_id = c.id
                              and s.last_sent_at
                                  > greatest(statement_timestamp() - interval '30 days',
                                             w.compared_at - interval '74 hours')) sent
       -- The first condition spares the look at the submissions of nearly all companies.
       where (w.compared_at is null or w.compared_at < clock_timestamp() - 24 * every)
         and sent.at is not null
         and coalesce(w.compared_at, sent.at) < clock_timestamp() - 24 * every
         and not exists (select from held h where h.company_id = c.id)
      union all
      select 'attention', shown.kind, 0, null
        from (values ('NeedsPerson'), ('Finding'), ('Hold')) shown (kind)
      union all
      select 'attention', 'NeedsPerson', 1, s.updated_at
        from submissions s
       where s.state = 'NeedsPerson'
      union all
      select 'attention', 'Finding', 1, f.found_at
        from findings f
       where f.resolved_at is null
      union all
      select 'attention', 'Hold', 1, h.since from held h where h.can_send
      union all
      select 'attention', 'UnknownOutcome', 1, s.last_sent_at
        from sending s
       where s.state in ('Sending', 'Uncertain') and s.last_sent_at < clock_timestamp() - age
      union all
      select 'attention', 'NoOutcome', 1, s.last_sent_at
        from sending s
       where s.state = 'Accepted'
         and not s.has_outcome
         and s.last_sent_at < clock_timestamp() - interval '1 day'
      union all
      select 'attention', 'SenderSilent', 1, s.lease_until
        from sending s
       where s.state = 'Sending' and s.lease_until < clock_timestamp() - age
      union all
      select 'attention', 'UnclearCancellation', 1, d.cancellation_requested_at
        from submitted_documents d
       where d.cancelling_until is not null and d.cancel_sent_by < clock_timestamp() - age
      union all
      select 'attention', 'RepeatedFailure', 1, s.updated_at
        from submissions s
       where s.has_repeated_claims and s.state in ('Queued', 'Sending', 'Uncertain', 'Accepted')
      union all
      select 'attention', w.code, 1, w.since
        from (select s.last_error ->> 'code' as code,
                     coalesce((s.last_error ->> 'since')::timestamptz, s.updated_at) as since
                from submissions s
               where s.state = 'Queued'
                 and s.last_error ->> 'code' in ('PortalUnreachable', 'ClocksApart')) w
       where w.since < clock_timestamp() - age
      union all
      select 'attention', 'ClockStepped', ceil(extract(epoch from c.stepped_by))::int, c.stepped_at
        from database_state c
       where c.stepped_at > clock_timestamp() - interval '1 day'
      union all
      select 'attention', 'OpenTransaction', 1, c.open_since
        from database_state c
       where c.oldest is not null
         and c.open_since < clock_timestamp() - greatest(age, interval '60 seconds')
      union all
      select 'attention', 'UnreadableRows', 1, o.first_seen_at
        from portal_odd_rows o
       where o.last_seen_at > clock_timestamp() - interval '3 days'
    )
    select f.subject, f.kind, sum(f.n), min(f.since) from found f group by f.subject, f.kind;
  end;
call run_across_companies('conditions');
comment on function conditions is
  'Overdue work, and what an operator should know within a minute, of all companies: kind, number, '
  'since when. Zero counts are those that /readyz always shows.';
