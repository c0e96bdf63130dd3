-- Claims companies for one cause.
--
-- unknown: up to `most` companies that have submissions with an unknown outcome which are due.
--
-- held: a company whose sending is held, once everything that was sent before the hold has settled:
-- those with their own client, then those that send, then those with few documents, so that most
-- are released soon. A company without a verified TIN cannot send, and is compared when its TIN is
-- verified.
--
-- regular: a company that was not compared within `every`, although it has documents that may have
-- changed since the latest complete comparison: a document can change for `changing` after it was
-- sent, and one that was sent longer than `furthest` ago is not listed.
--
-- Of the companies that use the operator's client, one that is held and one that is not are
-- compared completely at a time: more would share the rate limit of the portal's search, so that
-- all ended later. A company with its own client has its own.
create or replace function claim_comparisons(
    cause text, most bigint, lease interval, every interval, settle interval, changing interval,
    furthest interval)
  returns table (company_id bigint, fence bigint)
  volatile language sql
  begin atomic
    with own as (
      select p.company_id from portal_credentials p where p.removed_at is null
    ), busy as (
      select
        from comparisons b
       where b.lease_until > clock_timestamp()
         and b.is_complete
         and b.company_id not in (select o.company_id from own o)
         and (cause = 'held') = exists (
               select
                 from sending_holds x
                where x.company_id = b.company_id and x.released_at is null)
    ), due as (
      (select u.company_id
         from uncertain_heads() u
        where cause = 'unknown' and u.due_at <= clock_timestamp()
        order by u.due_at
        limit most)
      union all
      (select c.id
         from companies c
         left join comparisons w on w.company_id = c.id
         left join sending_holds h on h.company_id = c.id and h.released_at is null
        cross join lateral (select min(s.last_sent_at) as at
                              from submissions s
                             where s.company_id = c.id
                               and s.last_sent_at
                                   > greatest(clock_timestamp() - furthest,
                                              w.compared_at - changing)) sent
        cross join lateral (select h.since + settle as from_at,
                                   coalesce(w.compared_at < h.since + settle, true) as is_first)
              held
        where cause <> 'unknown'
          and (w.lease_until is null or w.lease_until < clock_timestamp())
          and (w.retry_at is null or w.retry_at < clock_timestamp())
          and (cause = 'held') = (h.since is not null)
          and case when cause = 'regular'
                   then sent.at is not null
                        and coalesce(w.compared_at, sent.at) + every <= clock_timestamp()
                   else c.tin <> '' and c.tin_verified_at is not null
                        and held.from_at <= clock_timestamp()
                        and (held.is_first or w.compared_at + every <= clock_timestamp()) end
          and (c.id in (select o.company_id from own o) or not exists (select from busy))
        order by cause = 'held' and not held.is_first,
                 c.id not in (select o.company_id from own o),
                 case when cause = 'held'
                      then sent.at is null
                           and not exists (select
                                             from submissions q
                                            where q.company_id = c.id and q.state = 'Queued'
                                              and q.on_absence = 'retry'
                                              and q.first_sent_at is null) end,
                 case when cause = 'held' then w.listed end nulls first,
                 w.compared_at nulls first,
                 c.id
        limit 1)
    )
    insert into comparisons as w (company_id, fence, lease_until, is_complete)
    select d.company_id, 1, clock_timestamp() + lease, cause <> 'unknown' from due d
        on conflict (company_id) do update
       set fence = w.fence + 1, lease_until = excluded.lease_until,
           is_complete = excluded.is_complete
     where w.lease_until is null or w.lease_until < clock_timestamp()
    returning w.company_id, w.fence;
  end;
call run_across_companies('claim_comparisons');
comment on function claim_comparisons is
  'Claim companies to be compared with the portal for a cause: unknown, held or regular. Returns '
  'their new fencing tokens. No row when none is due, or another held or regular one that uses the '
  'operator''s client is being compared.';
