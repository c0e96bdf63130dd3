-- Findings say what to do. Only duplicates and orphans are documents that a person may want to
-- cancel. The result names other companies, so only the operator may read it.
create or replace function attention(shown_for interval)
  returns table (kind text, company_id bigint, id bigint, since timestamptz, facts jsonb)
  stable language sql
  begin atomic
    -- For each submission of whose open documents exactly one listed document each was found.
    with adoptions as (
      select d.company_id, d.submission_id,
             format('python run.py resolve-submission %s --company %s --received %s',
                    d.submission_id,
                    d.company_id,
                    string_agg(f.uuid, ' ' order by d.id)) as command
        from submissions s
        join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
        left join findings f
               on f.company_id = d.company_id
              and f.submitted_document_id = d.id
              and f.kind = 'adoptable'
              and f.resolved_at is null
       where s.state = 'NeedsPerson' and d.status in ('Submitting', 'Submitted', 'Valid')
       group by d.company_id, d.submission_id
      having count(*) = count(f.uuid) and count(*) = count(distinct d.id)
    )
    select 'submission', s.company_id, s.id, s.updated_at,
           jsonb_build_object(
             'tin', s.tin,
             'on_absence', s.on_absence,
             'sends', s.sends,
             'last_sent_at', s.last_sent_at,
             'request_sha256', encode(s.request_sha256, 'hex'),
             'submission_uid', s.submission_uid,
             'last_error', s.last_error,
             'adopt_with', a.command,
             'documents', (
               select jsonb_agg(jsonb_build_object(
                          'number', d.number,
                          'document_type', d.document_type,
                          'issued_at', d.issued_at,
                          'status', d.status,
                          'uuid', d.uuid,
                          'sha256', d.document_hash,
                          'document', document_name(d.kind, d.document_id))
                        order by d.id)
                 from submitted_documents d
                where d.company_id = s.company_id and d.submission_id = s.id),
             'evidence', (
               select jsonb_agg(jsonb_build_object(
                          'number', e.number, 'uuid', e.uuid, 'via', e.via, 'seen_at', e.seen_at)
                        order by e.seen_at)
                 from portal_sightings e
                where e.company_id = s.company_id and e.submission_id = s.id))
      from submissions s
      left join adoptions a on a.company_id = s.company_id and a.submission_id = s.id
     where s.state = 'NeedsPerson'
    union all
    select 'finding', f.company_id, f.id, f.found_at,
           jsonb_build_object(
             'kind', f.kind,
             'tin', f.tin,
             'number', f.number,
             'document_type', f.document_type,
             'uuid', f.uuid,
             'other_uuid', f.other_uuid,
             'submitted_document_id', f.submitted_document_id,
             'received_at', f.received_at)
           || case f.kind
                when 'adoptable' then
                  jsonb_build_object(
                    'what', 'The portal has a document with the number, type and issue time of one '
                            'that needs a person. '
                            'The command adopts it if it is the document that was sent.',
                    'adopt_with', (select a.command
                                     from submitted_documents d
                                     join adoptions a
                                       on a.company_id = d.company_id
                                      and a.submission_id = d.submission_id
                                    where d.company_id = f.company_id
                                      and d.id = f.submitted_document_id))
                when 'cancelled_elsewhere' then
                  jsonb_build_object(
                    'what', 'The portal shows the document as cancelled, and no request of this '
                            'service cancelled it. The company may have done so on the portal''s '
                            'own pages, for example after a buyer''s rejection. If it did not, '
                            'somebody else can act in its name.',
                    'cancelled_at', f.cancelled_at, 'reason', f.reason)
                when 'shared_uuid' then
                  jsonb_build_object(
                    'what', 'Other companies have recorded the uuid of this document as theirs.',
                    'companies', (
                      select jsonb_agg(o.company_id order by o.company_id)
                        from (select d.company_id
                                from submitted_documents d
                               where d.uuid = f.uuid
                              union
                              select e.company_id
                                from portal_sightings e
                               where e.uuid = f.uuid and e.via in ('submit', 'search')) o
                       where o.company_id <> f.company_id))
                when 'missing' then '{}'
                else jsonb_build_object('cancellable_until', f.received_at + interval '72 hours')
              end
      from findings f
     where f.resolved_at is null
    union all
    select 'hold', h.company_id, h.id, h.since, jsonb_build_object('reason', h.reason)
      from sending_holds h
      join companies c on c.id = h.company_id
     where h.released_at is null and c.tin <> '' and c.tin_verified_at is not null
    union all
    select 'oddity', o.company_id, o.id, o.first_seen_at,
           jsonb_build_object(
             'operation', o.operation,
             'tin', o.tin,
             'number', o.number,
             'row_key', o.row_key,
             'problems', o.problems,
             'shown', o.shown,
             'last_seen_at', o.last_seen_at,
             'times', o.times,
             'what_to_do', 'Look the document up on the portal''s own pages. It is skipped, and '
                           'everything else goes on. If it belongs to the company, resolve its '
                           'submission manually (resolve-submission), and update the service so '
                           'that it can read it.')
      from portal_odd_rows o
     where o.last_seen_at > clock_timestamp() - shown_for
     order by 4;
  end;
call run_across_companies('attention');
comment on function attention is
  'What needs a person, the oldest first: submissions, findings and holds of all companies, and '
  'portal rows that could not be read and were shown within `shown_for`, with facts as JSON.';
