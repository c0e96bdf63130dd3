-- First companies whose sending is held, once everything that was sent before the hold has settled.
-- Then companies that sent something within a day and were not compared within `every`.
create or replace function claim_sweep(lease interval, every interval, settle interval)
  returns table (company_id bigint, fence bigint)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with due as (
      select c.company_id, w.fence
        from public.sending_companies() c
        left join public.sweeps w on w.company_id = c.company_id
        left join public.sending_holds h on h.company_id = c.company_id and h.released_at is null
       cross join lateral (select min(s.last_sent_at) as at
                             from public.submissions s
                            where s.company_id = c.company_id
                              and s.last_sent_at
                                  > clock_timestamp() - greatest(interval '1 day', every)) sent
       where (w.lease_until is null or w.lease_until < clock_timestamp())
         and (h.since + settle <= clock_timestamp()
              and (w.swept_at is null or w.swept_at < h.since + settle)
              or coalesce(w.swept_at, sent.at) + every <= clock_timestamp()
              and (sent.at is not null or h.since is not null))
       order by h.since nulls last, w.swept_at nulls first
       limit 1
    )
    insert into public.sweeps as w (company_id, fence, lease_until)
    select d.company_id, 1, clock_timestamp() + lease from due d
        on conflict (company_id) do update
       set fence = w.fence + 1, lease_until = excluded.lease_until
     where w.fence = (select o.fence from due o)
    returning w.company_id, w.fence;
  end;
alter function claim_sweep owner to einvoice_across;
revoke all on function claim_sweep from public;
grant execute on function claim_sweep to einvoice_service;
comment on function claim_sweep is
  'Claim one company to be compared with the portal, with a new fencing token. No row when none '
  'is due.';
