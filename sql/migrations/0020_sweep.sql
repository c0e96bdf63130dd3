-- Comparing what we believe with what the portal has; holding sending back while we cannot know; what people settle.

-- What a comparison found: a fact, which nothing changes, and how it was settled, by a person or by a later comparison.
--   duplicate: the portal has a second document for an attempt of ours; `uuid` is the later one, `other_uuid` the earlier
--   orphan:    the portal has a document under our TIN that no attempt of ours accounts for
--   missing:   the portal does not list a document of ours that it took
create table sweep_findings (
  company_id            bigint not null references companies,
  id                    bigint generated always as identity,
  kind                  text not null,
  tin                   text not null,
  number                text not null,
  document_type         text,
  uuid                  text not null,
  other_uuid            text,
  submitted_document_id bigint,
  received_at           timestamptz,  -- by the portal
  found_at              timestamptz not null default clock_timestamp(),
  resolved_at           timestamptz,
  resolved_by           text,
  note                  text,
  primary key (company_id, id),
  foreign key (company_id, submitted_document_id) references submitted_documents (company_id, id),
  constraint sweep_findings_kind check (kind in ('duplicate', 'orphan', 'missing')),
  constraint sweep_findings_resolved check
    ((resolved_at is null) = (resolved_by is null) and (resolved_by = 'person') = (note is not null)),
  constraint sweep_findings_resolved_by check (resolved_by in ('person', 'sweep'))
);
create unique index sweep_findings_open on sweep_findings (company_id, kind, uuid) where resolved_at is null;
call keep_companies_apart('sweep_findings');
grant select on sweep_findings to einvoice_service;
grant insert (company_id, kind, tin, number, document_type, uuid, other_uuid, submitted_document_id, received_at)
   on sweep_findings to einvoice_service;
grant update (resolved_at, resolved_by, note) on sweep_findings to einvoice_service;

-- When a company was last compared, and who is at it.
create table sweeps (
  company_id  bigint primary key references companies,
  fence       bigint not null default 0,
  lease_until timestamptz,  -- of the process that compares; after a failure, until when nobody tries again
  swept_at    timestamptz,  -- when the listing of the latest complete comparison was asked for
  listed      int not null default 0,
  found       int not null default 0
);
call keep_companies_apart('sweeps');
grant select, insert, update on sweeps to einvoice_service;

-- While a company has a hold that is not released, nothing is sent for it.
create table sending_holds (
  company_id  bigint not null references companies,
  id          bigint generated always as identity,
  reason      text not null,
  since       timestamptz not null default clock_timestamp(),
  released_at timestamptz,
  primary key (company_id, id)
);
create unique index sending_holds_one_a_company on sending_holds (company_id) where released_at is null;
call keep_companies_apart('sending_holds');
grant select on sending_holds to einvoice_service;
grant update (released_at) on sending_holds to einvoice_service;

-- What a person has settled of a submission that no machine could: written once, never changed.
create table settlements (
  company_id    bigint not null references companies,
  id            bigint generated always as identity,
  submission_id bigint not null,
  outcome       text not null,
  uuids         text[] not null,
  note          text not null,
  settled_at    timestamptz not null default clock_timestamp(),
  primary key (company_id, id),
  foreign key (company_id, submission_id) references submissions (company_id, id),
  constraint settlements_outcome check (outcome in ('received', 'not_received'))
);
call keep_companies_apart('settlements');
grant select, insert on settlements to einvoice_service;

alter table portal_sightings
  drop constraint portal_sightings_via,
  add constraint portal_sightings_via check (via in ('submit', 'damaged answer', 'search', 'details'));

-- Nearly always empty.
create index submissions_needing_a_person on submissions (company_id, id) where state = 'NeedsPerson';

-- The database on which the service last was. A restored dump, a copy and a promoted standby are other ones.
create table database_identities (
  only_one boolean primary key default true,
  identity text not null,
  noted_at timestamptz not null default clock_timestamp(),
  constraint database_identities_only_one check (only_one)
);
grant select on database_identities to einvoice_service;

create policy across_companies on sweep_findings to einvoice_across using (true);
create policy across_companies on sweeps to einvoice_across using (true);
create policy across_companies on sending_holds to einvoice_across using (true);
grant select on sweep_findings to einvoice_across;
grant select, insert, update on sweeps, sending_holds, database_identities to einvoice_across;

-- The cluster and its timeline, the database and this very table: what another copy of the same rows has otherwise.
create function database_identity() returns text
  stable language sql
  begin atomic
    select format('%s/%s/%s/%s', s.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), d.oid,
                  'database_identities'::regclass::oid)
      from pg_control_system() s, pg_database d
     where d.datname = current_database();
  end;

-- Nothing is sent from now on, for any company that exists; says for how many that is new. A company that has no key
-- can send nothing.
create function hold_sending(why text) returns bigint
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with held as (
      insert into public.sending_holds (company_id, reason)
      select distinct k.company_id, why from public.api_keys k
          on conflict do nothing
      returning 1
    )
    select count(*) from held;
  end;
alter function hold_sending(text) owner to einvoice_across;
revoke all on function hold_sending(text) from public;
grant execute on function hold_sending(text) to einvoice_service;

-- Notes on which database the service is. True, and sending is held, where it was another one before: the rows may be
-- older than what was sent.
create function record_database_identity() returns boolean
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
declare
  here text := public.database_identity();
begin
  insert into public.database_identities (identity) values (here) on conflict do nothing;
  if found then
    return false;
  end if;
  update public.database_identities set identity = here, noted_at = clock_timestamp() where identity <> here;
  if not found then
    return false;
  end if;
  perform public.hold_sending('The database was restored, copied or failed over.');
  return true;
end $$;
alter function record_database_identity() owner to einvoice_across;
revoke all on function record_database_identity() from public;
grant execute on function record_database_identity() to einvoice_service;

-- As in 0018, without what is Queued of a company whose sending is held.
create or replace function claim_submissions(lease interval, most int, states text[] default null)
  returns table (company_id bigint, id bigint, fence bigint, state text, claims int)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with unsent as (
      select s.company_id, s.id, coalesce(turn.at, '-infinity') as at
        from public.unsent_heads() h
        join public.submissions s on s.company_id = h.company_id and s.id = h.id
       cross join lateral (select max(t.last_sent_at) as at
                             from public.submissions t
                            where t.company_id = h.company_id and t.last_sent_at is not null) turn
       where (states is null or 'Queued' = any (states))
         and h.due_at <= clock_timestamp()
         and not exists (select from public.sending_holds x where x.company_id = h.company_id and x.released_at is null)
         and s.state = 'Queued'
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
       order by turn.at nulls first, h.due_at
         for update of s skip locked
       limit most
    ), waiting as (
      select s.company_id, s.id, s.not_before as at
        from public.submissions s
       where (s.state in ('Sending', 'Uncertain', 'Accepted')
              or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)
                  and not exists (select from public.sending_holds x where x.company_id = s.company_id and x.released_at is null)))
         and (states is null or s.state = any (states))
         and s.not_before <= clock_timestamp()
         and (s.lease_until is null or s.lease_until < clock_timestamp())
         and not (s.state = 'Uncertain'
                  and exists (select
                                from public.submissions o
                               where o.company_id = s.company_id and o.state = 'Uncertain'
                                 and (o.lease_until >= clock_timestamp()
                                      or o.id < s.id and o.not_before <= clock_timestamp())))
       order by s.not_before
         for update skip locked
       limit most
    ), due as (
      select u.company_id, u.id, u.at from unsent u
      union all
      select w.company_id, w.id, w.at from waiting w
      order by at
      limit most
    )
    update public.submissions s
       set fence = s.fence + 1, claims = s.claims + 1, lease_until = clock_timestamp() + lease
      from due
     where s.company_id = due.company_id and s.id = due.id
    returning s.company_id, s.id, s.fence, s.state, s.claims;
  end;

create or replace function next_due(states text[] default null) returns interval
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select min(at) - clock_timestamp()
      from (select min(greatest(s.not_before, s.lease_until)) as at
              from public.submissions s
             where (s.state in ('Sending', 'Uncertain', 'Accepted')
                    or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null)
                        and not exists (select from public.sending_holds x where x.company_id = s.company_id and x.released_at is null)))
               and (states is null or s.state = any (states))
            union all
            select min(h.due_at)
              from public.unsent_heads() h
             where (states is null or 'Queued' = any (states))
               and not exists (select from public.sending_holds x where x.company_id = h.company_id and x.released_at is null)
            union all
            select min(d.cancelling_until)
              from public.submitted_documents d
             where d.cancelling_until is not null and (states is null or 'Accepted' = any (states))) due;
  end;

-- Claims one company that is to be compared with the portal: first those whose sending is held, once what was sent
-- before the hold has settled; then those that have sent something within a day and were not compared since `every`.
create function claim_sweep(lease interval, every interval, settle interval)
  returns table (company_id bigint, fence bigint)
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    with due as (
      select c.company_id, w.fence
        from (select distinct k.company_id from public.api_keys k) c
        left join public.sweeps w on w.company_id = c.company_id
        left join public.sending_holds h on h.company_id = c.company_id and h.released_at is null
       cross join lateral (select min(s.last_sent_at) as at
                             from public.submissions s
                            where s.company_id = c.company_id
                              and s.last_sent_at > clock_timestamp() - greatest(interval '1 day', every)) sent
       where (w.lease_until is null or w.lease_until < clock_timestamp())
         and (h.since + settle <= clock_timestamp() and (w.swept_at is null or w.swept_at < h.since + settle)
              or coalesce(w.swept_at, sent.at) + every <= clock_timestamp() and (sent.at is not null or h.since is not null))
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
alter function claim_sweep(interval, interval, interval) owner to einvoice_across;
revoke all on function claim_sweep(interval, interval, interval) from public;
grant execute on function claim_sweep(interval, interval, interval) to einvoice_service;

-- The companies that can send, and so can be compared.
create function sending_companies() returns table (company_id bigint)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select distinct k.company_id from public.api_keys k order by k.company_id;
  end;
alter function sending_companies() owner to einvoice_across;
revoke all on function sending_companies() from public;
grant execute on function sending_companies() to einvoice_service;

-- Those of some uuids that other companies have: a TIN may be several companies'.
create function uuids_elsewhere(company bigint, uuids text[]) returns table (uuid text)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select d.uuid
      from (select distinct k.company_id from public.api_keys k where k.company_id <> company) c
      join public.submitted_documents d on d.company_id = c.company_id and d.uuid = any (uuids);
  end;
alter function uuids_elsewhere(bigint, text[]) owner to einvoice_across;
revoke all on function uuids_elsewhere(bigint, text[]) from public;
grant execute on function uuids_elsewhere(bigint, text[]) to einvoice_service;

-- The company of a finding, for a person who has read its id in a list of all.
create function company_of_finding(finding bigint) returns bigint
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select f.company_id from public.sweep_findings f where f.id = finding;
  end;
alter function company_of_finding(bigint) owner to einvoice_across;
revoke all on function company_of_finding(bigint) from public;
grant execute on function company_of_finding(bigint) to einvoice_service;

-- What waits for a person, the longest first: submissions, findings and holds, each as a JSON object.
create function attention() returns table (kind text, company_id bigint, id bigint, since timestamptz, facts jsonb)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select 'submission', s.company_id, s.id, s.updated_at,
           jsonb_build_object('tin', s.tin, 'on_absence', s.on_absence, 'sends', s.sends, 'last_sent_at', s.last_sent_at,
             'body_sha256', encode(sha256(s.body), 'hex'), 'submission_uid', s.submission_uid, 'last_error', s.last_error,
             'documents', (select jsonb_agg(jsonb_build_object('number', d.number, 'document_type', d.document_type,
                                    'issued_at', d.issued_at, 'status', d.status, 'uuid', d.uuid, 'sha256', d.document_hash,
                                    'invoice_id', d.invoice_id, 'adjustment_note_id', d.adjustment_note_id,
                                    'consolidated_invoice_id', d.consolidated_invoice_id) order by d.id)
                             from public.submitted_documents d
                            where d.company_id = s.company_id and d.submission_id = s.id),
             'evidence', (select jsonb_agg(jsonb_build_object('number', e.number, 'uuid', e.uuid, 'via', e.via,
                                   'seen_at', e.seen_at) order by e.seen_at)
                            from public.portal_sightings e
                           where e.company_id = s.company_id and e.submission_id = s.id))
      from public.submissions s
     where s.state = 'NeedsPerson'
    union all
    select 'finding', f.company_id, f.id, f.found_at,
           jsonb_build_object('kind', f.kind, 'tin', f.tin, 'number', f.number, 'document_type', f.document_type,
             'uuid', f.uuid, 'other_uuid', f.other_uuid, 'submitted_document_id', f.submitted_document_id,
             'received_at', f.received_at, 'cancellable_until', f.received_at + interval '72 hours')
      from public.sweep_findings f
     where f.resolved_at is null
    union all
    select 'hold', h.company_id, h.id, h.since, jsonb_build_object('reason', h.reason)
      from public.sending_holds h
     where h.released_at is null
     order by 4;
  end;
create policy across_companies on portal_sightings to einvoice_across using (true);
grant select on portal_sightings to einvoice_across;
alter function attention() owner to einvoice_across;
revoke all on function attention() from public;
grant execute on function attention() to einvoice_service;

-- What the watchdog looks at: how much there is of each kind, and since when the oldest has been due, or open.
-- Reads the tables, and shares nothing with the claims of the workers.
create function watch(grace interval, settle interval, proof_gap interval, every interval)
  returns table (subject text, kind text, n bigint, oldest timestamptz)
  stable security definer set search_path = pg_catalog, public set plan_cache_mode = force_custom_plan language sql
  begin atomic
    with held as (
      select h.company_id, h.since from public.sending_holds h where h.released_at is null
    ), sending as (
      select s.company_id, s.state, greatest(s.not_before, s.lease_until) as due_at, s.last_sent_at, s.updated_at
        from public.submissions s
       where s.state in ('Sending', 'Uncertain', 'Accepted')
          or (s.state = 'Queued' and (s.on_absence <> 'retry' or s.first_sent_at is not null))
      union all
      select s.company_id, s.state, greatest(s.not_before, s.lease_until), s.last_sent_at, s.updated_at
        from public.submissions s
       where s.state = 'Queued' and s.on_absence = 'retry' and s.first_sent_at is null
    )
    select 'state', s.state, count(*), min(s.due_at) from sending s group by s.state
    union all
    select 'overdue', s.state, count(*), min(s.due_at)
      from sending s
     where s.due_at < clock_timestamp() - grace
       and (s.state <> 'Queued' or not exists (select from held h where h.company_id = s.company_id))
     group by s.state
    union all
    select 'overdue', s.state, count(*), min(s.last_sent_at)
      from sending s
     where s.state in ('Sending', 'Uncertain') and s.last_sent_at + settle + 2 * proof_gap < clock_timestamp() - 3 * grace
       and s.due_at >= clock_timestamp() - grace
     group by s.state
    union all
    select 'overdue', 'Cancellation', count(*), min(d.cancelling_until)
      from public.submitted_documents d
     where d.cancelling_until < clock_timestamp() - grace
    having count(*) > 0
    union all
    select 'overdue', 'Delivery', count(*), min(o.due_at)
      from public.webhook_endpoints e
     cross join lateral (select min(w.next_attempt_at) as due_at
                           from public.webhook_deliveries w
                          where w.company_id = e.company_id and w.endpoint_id = e.id and w.status = 'Pending') o
     where e.enabled and o.due_at < clock_timestamp() - grace
       and (e.lease_until is null or e.lease_until < clock_timestamp() - grace)
    having count(*) > 0
    union all
    select 'overdue', 'Sweep', count(*), min(w.swept_at)
      from public.sweeps w
     where w.swept_at < clock_timestamp() - 24 * every
       and exists (select
                     from public.submissions s
                    where s.company_id = w.company_id and s.last_sent_at > clock_timestamp() - interval '1 day')
    having count(*) > 0
    union all
    select 'attention', 'NeedsPerson', count(*), min(s.updated_at) from public.submissions s where s.state = 'NeedsPerson'
    union all
    select 'attention', 'Finding', count(*), min(f.found_at) from public.sweep_findings f where f.resolved_at is null
    union all
    select 'attention', 'Hold', count(*), min(h.since) from held h;
  end;
alter function watch(interval, interval, interval, interval) owner to einvoice_across;
revoke all on function watch(interval, interval, interval, interval) from public;
grant execute on function watch(interval, interval, interval, interval) to einvoice_service;
