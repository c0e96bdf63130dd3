-- Each listed document has a uuid, number, type and issue time. A type or an issue time may be
-- null.
create or replace function uuids_elsewhere(
    company bigint, own_tin text, uuids text[], numbers text[], types text[],
    issue_times timestamptz[])
  returns table (uuid text, is_recorded boolean)
  stable language sql
  begin atomic
    -- The companies that have sent under the TIN: one index lookup for each.
    with recursive senders (company_id) as (
      select 0::bigint
      union all
      select n.company_id
        from senders p
       cross join lateral (select t.company_id
                             from submissions t
                            where t.tin = own_tin and t.company_id > p.company_id
                            order by t.company_id
                            limit 1) n
    )
    select d.uuid, true
      from submitted_documents d
     where d.uuid = any (uuids) and d.company_id <> company
    union
    select e.uuid, true
      from portal_sightings e
     where e.uuid = any (uuids) and e.company_id <> company and e.via in ('submit', 'search')
    union all
    select l.uuid, false
      from unnest(uuids, numbers, types, issue_times) l (uuid, number, document_type, issued_at)
     where exists (select
                     from senders o
                     join submitted_documents d
                       on d.company_id = o.company_id and d.number = l.number
                     join submissions s on s.company_id = d.company_id and s.id = d.submission_id
                    where o.company_id <> company
                      and s.tin = own_tin
                      and s.state in ('Sending', 'Uncertain', 'NeedsPerson')
                      and (l.document_type is null or d.document_type = l.document_type)
                      and (l.issued_at is null or d.issued_at = l.issued_at));
  end;
call run_across_companies('uuids_elsewhere');
comment on function uuids_elsewhere is
  'Uuids of listed documents that other companies have recorded as theirs, in a submitted document '
  'or as a sighting, or, without is_recorded, may have sent under the TIN with an outcome still '
  'unknown.';
