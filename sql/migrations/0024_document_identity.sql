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
create index portal_evidence_by_uuid on portal_evidence (uuid);

-- Who else has sent under a TIN.
create index submissions_by_tin on submissions (tin, company_id);

-- How a uuid became known:
--   submit:         the portal's receipt of this submission named it
--   search:         it was shown, and proven to be the document that was sent
--   damaged answer: part of a receipt named it
--   details:        a person named it
--   unproven:       it was shown with the number, type and issue time of the document, and could not be proven to be it
--   listed:         the sweep saw it with the number, type and issue time of the document, and proved nothing
alter table portal_evidence
  drop constraint portal_evidence_via,
  add constraint portal_evidence_via check
    (via in ('submit', 'damaged answer', 'search', 'details', 'unproven', 'listed'));
comment on column portal_evidence.via is
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
-- for a document of another company, of which nothing else is told.
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
