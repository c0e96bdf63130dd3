-- A uuid of the portal belongs to one submitted document of the whole database, and a document is adopted only if it is
-- provably the one that this company sent.

-- Name the rows where a database already holds one uuid twice, instead of failing with a bare unique violation.
do $$
declare
  twice text;
begin
  select string_agg(format('%s (%s)', t.uuid, t.documents), '; ' order by t.uuid)
    into twice
    from (select d.uuid,
                 string_agg(format('company %s submitted document %s', d.company_id, d.id), ', '
                            order by d.company_id, d.id) as documents
            from submitted_documents d
           where d.uuid is not null
           group by d.uuid
          having count(*) > 1
           order by d.uuid
           limit 20) t;
  if twice is not null then
    raise exception 'Several submitted documents have the same uuid of the portal: %', twice
      using hint = 'A uuid belongs to one document. Find out at the portal who sent it, and set uuid to another value '
                   'in the rows of the others (or null with the status Rejected). Then migrate again.';
  end if;
end $$;

-- The portal chooses uuids, no client does, so that this index tells a company nothing about another. It also serves the
-- lookups of one company's uuids.
drop index submitted_documents_uuid_once;
create unique index submitted_documents_uuid_once on submitted_documents (uuid);
comment on index submitted_documents_uuid_once is
  'A uuid of the portal belongs to one submitted document of all companies.';

-- Who else has seen a uuid.
create index portal_sightings_by_uuid on portal_sightings (uuid);

-- Who else has sent under a TIN.
create index submissions_by_tin on submissions (tin, company_id);

-- How a uuid became known:
--   submit:         the portal's receipt of this submission named it
--   search:         it was shown, and proven to be the document that was sent
--   damaged answer: part of a receipt named it
--   details:        a person named it
--   unproven:       it was shown with the number, type and issue time of the document, and could not be proven to be it
--   listed:         the sweep saw it with the number, type and issue time of the document, and proved nothing
alter table portal_sightings
  drop constraint portal_sightings_via,
  add constraint portal_sightings_via check
    (via in ('submit', 'damaged answer', 'search', 'details', 'unproven', 'listed'));
comment on column portal_sightings.via is
  'How the uuid became known. Only submit and search prove that it is the document; the others are for people.';

-- A TIN as the portal compares it: upper case, without blanks and hyphens. Portal: 3.2
create function comparable_tin(tin text) returns text
  immutable parallel safe language sql
  return upper(regexp_replace(tin, '[\s\u200b-\u200d\u2060\ufeff-]+', '', 'g'));
create index companies_by_comparable_tin on companies (comparable_tin(tin_code));

create policy tins_across_companies on companies for select to einvoice_across using (true);
grant select (id, tin_code) on companies to einvoice_across;

-- Return true if another company has the TIN, or has ever written a submission under it.
create function tin_is_shared(company bigint, own_tin text) returns boolean
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select exists (select
                     from public.companies c
                    where public.comparable_tin(c.tin_code) = own_tin and c.id <> company)
        or exists (select from public.submissions s where s.tin = own_tin and s.company_id < company)
        or exists (select from public.submissions s where s.tin = own_tin and s.company_id > company);
  end;
alter function tin_is_shared(bigint, text) owner to einvoice_across;
revoke all on function tin_is_shared(bigint, text) from public;
grant execute on function tin_is_shared(bigint, text) to einvoice_service;

-- Return those of some uuids that submitted documents have, with the submission where it is the company's own. It is null
-- for a document of another company, of which nothing else is returned.
create function uuids_recorded(company bigint, uuids text[]) returns table (uuid text, own_submission bigint)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select d.uuid,
           case d.company_id when company then d.submission_id end
      from public.submitted_documents d
     where d.uuid = any (uuids);
  end;
alter function uuids_recorded(bigint, text[]) owner to einvoice_across;
revoke all on function uuids_recorded(bigint, text[]) from public;
grant execute on function uuids_recorded(bigint, text[]) to einvoice_service;

-- As in 0020, by the index on uuid.
create or replace function uuids_elsewhere(company bigint, uuids text[]) returns table (uuid text)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select d.uuid
      from public.submitted_documents d
     where d.uuid = any (uuids) and d.company_id <> company;
  end;

-- Return those of some listed documents, each with its number, type and issue time, that may be documents which other
-- companies have sent under the TIN and whose outcome they do not know yet. A type or an issue time may be null.
create function uuids_attempted_elsewhere(
    company bigint, own_tin text, uuids text[], numbers text[], types text[], issue_times timestamptz[])
  returns table (uuid text)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    with recursive senders as (  -- the companies that have sent under the TIN, by one look at the index for each
      (select t.company_id from public.submissions t where t.tin = own_tin order by t.company_id limit 1)
      union all
      select n.company_id
        from senders p
       cross join lateral (select t.company_id
                             from public.submissions t
                            where t.tin = own_tin and t.company_id > p.company_id
                            order by t.company_id
                            limit 1) n
    )
    select l.uuid
      from unnest(uuids, numbers, types, issue_times) l (uuid, number, document_type, issued_at)
     where exists (select
                     from senders o
                     join public.submitted_documents d on d.company_id = o.company_id and d.number = l.number
                     join public.submissions s on s.company_id = d.company_id and s.id = d.submission_id
                    where o.company_id <> company
                      and s.tin = own_tin
                      and s.state in ('Sending', 'Uncertain', 'NeedsPerson')
                      and (l.document_type is null or d.document_type = l.document_type)
                      and (l.issued_at is null or d.issued_at = l.issued_at));
  end;
alter function uuids_attempted_elsewhere(bigint, text, text[], text[], text[], timestamptz[]) owner to einvoice_across;
revoke all on function uuids_attempted_elsewhere(bigint, text, text[], text[], text[], timestamptz[]) from public;
grant execute on function uuids_attempted_elsewhere(bigint, text, text[], text[], text[], timestamptz[]) to einvoice_service;

-- Return those of some uuids that other companies have recorded as theirs: for a submitted document, or as evidence.
create function uuids_shared(company bigint, uuids text[]) returns table (uuid text)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select d.uuid from public.submitted_documents d where d.uuid = any (uuids) and d.company_id <> company
    union
    select e.uuid
      from public.portal_sightings e
     where e.uuid = any (uuids) and e.company_id <> company and e.via in ('submit', 'search');
  end;
alter function uuids_shared(bigint, text[]) owner to einvoice_across;
revoke all on function uuids_shared(bigint, text[]) from public;
grant execute on function uuids_shared(bigint, text[]) to einvoice_service;

-- Further kinds of findings:
--   adoptable:           the portal has a document with the number, type and issue time of one that needs a person
--   cancelled_elsewhere: the portal shows a document of ours as cancelled, and no request of this service cancelled it
--   shared_uuid:         another company of this database has recorded the uuid of a document of ours as its own
alter table sweep_findings
  drop constraint sweep_findings_kind,
  add constraint sweep_findings_kind check
    (kind in ('duplicate', 'orphan', 'missing', 'adoptable', 'cancelled_elsewhere', 'shared_uuid')),
  add column cancelled_at timestamptz,  -- when the portal says that it was cancelled; only of cancelled_elsewhere
  add column reason       text;         -- what the portal gives as the reason for that
comment on column sweep_findings.kind is
  'duplicate and orphan: a document at the portal that should not be there. missing: one of ours that it does not list. '
  'adoptable: a possible copy of a document that needs a person. cancelled_elsewhere: one of ours that others cancelled. '
  'shared_uuid: another company has recorded the uuid too.';
comment on column sweep_findings.cancelled_at is
  'When the portal says that the document was cancelled; only of cancelled_elsewhere.';
comment on column sweep_findings.reason is
  'The reason that the portal gives for the cancellation; only of cancelled_elsewhere.';
grant insert (cancelled_at, reason) on sweep_findings to einvoice_service;

-- Return the command that adopts everything the portal has of a submission that needs a person; null unless exactly one
-- listed document was found for each of its open documents.
create function adoption_command(company bigint, submission bigint) returns text
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select format('python run.py settle-submission %s --company %s --received %s --note …', submission, company,
                  string_agg(f.uuid, ' ' order by d.id))
      from public.submitted_documents d
      left join public.sweep_findings f
             on f.company_id = d.company_id and f.submitted_document_id = d.id and f.kind = 'adoptable'
            and f.resolved_at is null
     where d.company_id = company and d.submission_id = submission and d.status in ('Submitting', 'Submitted', 'Valid')
    having count(*) = count(f.uuid) and count(*) = count(distinct d.id);
  end;
alter function adoption_command(bigint, bigint) owner to einvoice_across;
revoke all on function adoption_command(bigint, bigint) from public;

-- As in 0020; findings say what to do. Only duplicates and orphans are documents that somebody may want to cancel. Other
-- companies are named here, which only the operator reads.
create or replace function attention()
  returns table (kind text, company_id bigint, id bigint, since timestamptz, facts jsonb)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select 'submission', s.company_id, s.id, s.updated_at,
           jsonb_build_object('tin', s.tin, 'on_absence', s.on_absence, 'sends', s.sends, 'last_sent_at', s.last_sent_at,
             'body_sha256', encode(sha256(s.body), 'hex'), 'submission_uid', s.submission_uid, 'last_error', s.last_error,
             'adopt_with', public.adoption_command(s.company_id, s.id),
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
             'received_at', f.received_at)
           || case f.kind
                when 'adoptable' then
                  jsonb_build_object(
                    'what', 'The portal has a document with the number, type and issue time of one that needs a person. '
                            'The command adopts it if it is the document that was sent.',
                    'adopt_with', (select public.adoption_command(d.company_id, d.submission_id)
                                     from public.submitted_documents d
                                    where d.company_id = f.company_id and d.id = f.submitted_document_id))
                when 'cancelled_elsewhere' then
                  jsonb_build_object(
                    'what', 'The portal shows the document as cancelled, and no request of this service cancelled it. '
                            'The company may have done so on the portal''s own pages, for example after a buyer''s '
                            'rejection. If it did not, somebody else can act in its name.',
                    'cancelled_at', f.cancelled_at, 'reason', f.reason)
                when 'shared_uuid' then
                  jsonb_build_object(
                    'what', 'Other companies have recorded the uuid of this document as theirs.',
                    'companies', (select jsonb_agg(o.company_id order by o.company_id)
                                    from (select d.company_id from public.submitted_documents d where d.uuid = f.uuid
                                          union
                                          select e.company_id
                                            from public.portal_sightings e
                                           where e.uuid = f.uuid and e.via in ('submit', 'search')) o
                                   where o.company_id <> f.company_id))
                when 'missing' then '{}'
                else jsonb_build_object('cancellable_until', f.received_at + interval '72 hours')
              end
      from public.sweep_findings f
     where f.resolved_at is null
    union all
    select 'hold', h.company_id, h.id, h.since, jsonb_build_object('reason', h.reason)
      from public.sending_holds h
     where h.released_at is null
     order by 4;
  end;
