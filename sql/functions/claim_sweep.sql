-- Of the companies that use the operator's client, one that is held and one that is not are
-- compared at a time: more would share the rate limit of the portal's search, so that all ended
-- later. A company with its own client has its own.
--
-- With `of_held`, a company whose sending is held, once everything that was sent before the hold
-- has settled: those with their own client, then those that send, then those with few documents, so
-- that most are released soon. A company without a verified TIN cannot send, and is compared when
-- its TIN is verified.
--
-- Otherwise, a company that was not compared within `every`, although it has documents that may
-- have changed since the latest comparison: a document can change for `changing` after it was sent,
-- and one that was sent longer than `furthest` ago is not listed.
create or replace function claim_sweep(
    lease interval, every interval, settle interval, changing interval, furthest interval,
    of_held boolean)
  returns table (company_id bigint, fence bigint)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with own as (
      select p.company_id from public.portal_credentials p where p.removed_at is null
    ), busy as (
      select
        from public.sweeps b
       where b.lease_until > clock_timestamp()
         and b.company_id not in (select o.company_id from own o)
         and of_held = exists (select
                                 from public.sending_holds x
                                where x.company_id = b.company_id and x.released_at is null)
    ), due as (
      select c.id as company_id, w.fence
        from public.companies c
        left join public.sweeps w on w.company_id = c.id
        left join public.sending_holds h on h.company_id = c.id and h.released_at is null
       cross join lateral (select min(s.last_sent_at) as at
                             from public.submissions s
                            where s.company_id = c.id
                              and s.last_sent_at
                                  > greatest(clock_timestamp() - furthest,
                                             w.swept_at - changing)) sent
       cross join lateral (select h.since + settle as from_at,
                                  coalesce(w.swept_at < h.since + settle, true) as is_first) held
       where (w.lease_until is null or w.lease_until < clock_timestamp())
         and (w.retry_at is null or w.retry_at < clock_timestamp())
         and of_held = (h.since is not null)
         and case when not of_held
                  then sent.at is not null
                       and coalesce(w.swept_at, sent.at) + every <= clock_timestamp()
                  else c.tin <> '' and c.tin_verified_at is not null
                       and held.from_at <= clock_timestamp()
                       and (held.is_first or w.swept_at + every <= clock_timestamp()) end
         and (c.id in (select o.company_id from own o) or not exists (select from busy))
       order by of_held and not held.is_first,
                c.id not in (select o.company_id from own o),
                case when of_held
                     then sent.at is null
                          and not exists (select
                                            from public.submissions q
                                           where q.company_id = c.id and q.state = 'Queued'
                                             and q.on_absence = 'retry'
                                             and q.first_sent_at is null) end,
                case when of_held then w.listed end nulls first,
                w.swept_at nulls first,
                c.id
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
  'Claim one company to be compared with the portal, held or not, with a new fencing token. No '
  'row when none is due, or another such one that uses the operator''s client is being compared.';
