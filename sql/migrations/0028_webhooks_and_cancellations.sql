-- Fair shares of webhook deliveries, and cancellations whose outcome is unclear.

-- Slow receivers as a class get at most half of the places of a process. An endpoint counts as slow until one of its
-- attempts has ended quickly. Endpoints from before this migration count as quick until they show otherwise.
alter table webhook_endpoints add column slow boolean not null default false;
alter table webhook_endpoints alter column slow set default true;
comment on column webhook_endpoints.slow is
  'Whether the latest attempt took long (a third of the timeout or more), or none has ended yet.';

-- Claims the earliest due delivery of each of several endpoints for `lease`, longest-waiting endpoint first.
-- `companies` and `slow_ones` describe the attempts that the process has under way, one element for each. The process
-- has `places` places; one company gets at most `share` of them, and never more than it leaves free, so that another
-- company always finds a place. Half of the places, and half of a share, are kept for endpoints that are not slow.
-- A loop, because what is due must be read after the endpoint is locked: read before, it could be what another process
-- has just delivered.
drop function claim_webhook_deliveries(interval, int);
create function claim_webhook_deliveries(lease interval, companies bigint[], slow_ones boolean[], places int, share int)
  returns table (company_id bigint, id bigint, endpoint_id bigint, fence bigint, step int, event_id bigint,
                 url text, slow boolean, secrets bytea[], sealed_secrets bytea[], body text)
  volatile security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan
  language plpgsql as $$
#variable_conflict use_column
declare
  candidate record;
  free int := places - cardinality(companies);
  free_slow int := places / 2 - cardinality(array_positions(slow_ones, true));
  held int;
  held_slow int;
begin
  for candidate in
    select e.company_id, e.id, e.slow
      from public.webhook_endpoints e
     where e.enabled
       and (e.lease_until is null or e.lease_until < clock_timestamp())
       and (not e.slow or free_slow > 0)
       and cardinality(array_positions(companies, e.company_id)) < least(share, free)
       and exists (select
                     from public.webhook_deliveries d
                    where d.company_id = e.company_id and d.endpoint_id = e.id
                      and d.status = 'Pending' and d.next_attempt_at <= clock_timestamp())
     order by e.served_at
       for update skip locked
  loop
    exit when free <= 0;
    select count(*), count(*) filter (where u.is_slow)
      into held, held_slow
      from unnest(companies, slow_ones) as u (company, is_slow)
     where u.company = candidate.company_id;
    continue when held >= least(share, free)
               or candidate.slow and held_slow >= least(share / 2, free_slow);
    return query
      with tried as (
        update public.webhook_deliveries d
           set attempts = d.attempts + 1, step = d.step + 1, last_attempt_at = clock_timestamp()
         where d.company_id = candidate.company_id
           and d.id = (select o.id
                         from public.webhook_deliveries o
                        where o.company_id = candidate.company_id and o.endpoint_id = candidate.id
                          and o.status = 'Pending' and o.next_attempt_at <= clock_timestamp()
                        order by o.id
                        limit 1)
        returning d.company_id, d.id, d.endpoint_id, d.step, d.event_id
      ), claimed as (
        update public.webhook_endpoints e
           set fence = e.fence + 1, lease_until = clock_timestamp() + lease, served_at = clock_timestamp()
          from tried t
         where e.company_id = t.company_id and e.id = t.endpoint_id
        returning e.company_id, e.id, e.fence, e.url, e.slow
      )
      select t.company_id, t.id, t.endpoint_id, c.fence, t.step, t.event_id, c.url, c.slow,
             array(select s.secret
                     from public.webhook_secrets s
                    where s.company_id = t.company_id and s.endpoint_id = t.endpoint_id and s.secret is not null
                      and (s.valid_until is null or s.valid_until > clock_timestamp())
                    order by s.id desc),
             array(select s.sealed_secret
                     from public.webhook_secrets s
                    where s.company_id = t.company_id and s.endpoint_id = t.endpoint_id and s.sealed_secret is not null
                      and (s.valid_until is null or s.valid_until > clock_timestamp())
                    order by s.id desc),
             json_build_object('type', v.type, 'timestamp', public.instant(v.created_at), 'data', v.data)::text
        from tried t
        join claimed c on c.company_id = t.company_id and c.id = t.endpoint_id
        join public.events v on v.company_id = t.company_id and v.id = t.event_id;
    if found then
      companies := companies || candidate.company_id;
      slow_ones := slow_ones || candidate.slow;
      free := free - 1;
      free_slow := free_slow - candidate.slow::int;
    end if;
  end loop;
end $$;
alter function claim_webhook_deliveries(interval, bigint[], boolean[], int, int) owner to einvoice_across;
revoke all on function claim_webhook_deliveries(interval, bigint[], boolean[], int, int) from public;
grant execute on function claim_webhook_deliveries(interval, bigint[], boolean[], int, int) to einvoice_service;

-- A cancellation is under way while cancelling_until is not null: the end of the claim on it, or the time of the next
-- look at the document. A request without a trustworthy answer may be processed late, so the document is looked at
-- until the settling time after the request is over.
alter table submitted_documents
  add column cancellation_requested_at timestamptz,
  add column cancel_sent_by timestamptz,
  add column cancel_looks int not null default 0;
comment on column submitted_documents.cancellation_requested_at is
  'When the cancellation under way was first requested; null when none is under way.';
comment on column submitted_documents.cancel_sent_by is
  'By when the latest request to cancel was sent that may still be processed. In the future while it may still be sent.';
comment on column submitted_documents.cancel_looks is
  'How often the document was looked at since the latest request to cancel.';
comment on column submitted_documents.cancelling_until is
  'A cancellation is under way: the end of the claim on it, or the time of the next look; null when none is.';

-- Cancellations under way during this migration were sent by the end of their claim at the latest. The owner of the
-- table may be bound by its forced policy, under which it has no rows.
alter table submitted_documents no force row level security;
update submitted_documents
   set cancellation_requested_at = updated_at, cancel_sent_by = cancelling_until
 where cancelling_until is not null;
alter table submitted_documents force row level security;

create or replace view submitted_document_records with (security_invoker = true) as
select d.id,
       d.company_id,
       d.invoice_id,
       d.adjustment_note_id,
       d.consolidated_invoice_id,
       d.status,
       s.submission_uid,
       d.uuid,
       d.long_id,
       d.document_hash,
       d.document_version,
       d.validation_link,
       d.errors,
       instant(d.submitted_at) as submitted_at,
       instant(d.validated_at) as validated_at,
       instant(d.cancelled_at) as cancelled_at,
       d.cancel_reason,
       case when d.status = 'Valid' then instant(d.submitted_at + interval '72 hours') end as cancellable_until,
       instant(d.rejection_requested_at) as rejection_requested_at,
       d.rejection_reason,
       instant(d.created_at) as created_at,
       instant(d.updated_at) as updated_at,
       instant(d.cancellation_requested_at) as cancellation_requested_at
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id;

-- Cancellations whose outcome should be known by now, in the form of watch(): the settling time after the latest
-- request is over for more than `grace`.
create function unsettled_cancellations(grace interval, settle interval)
  returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select 'overdue', 'Cancellation', count(*), min(coalesce(d.cancel_sent_by, d.cancellation_requested_at))
      from public.submitted_documents d
     where d.cancelling_until is not null
       and coalesce(d.cancel_sent_by, d.cancellation_requested_at) < clock_timestamp() - settle - grace
    having count(*) > 0;
  end;
alter function unsettled_cancellations(interval, interval) owner to einvoice_across;
revoke all on function unsettled_cancellations(interval, interval) from public;
grant execute on function unsettled_cancellations(interval, interval) to einvoice_service;
