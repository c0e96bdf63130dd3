create or replace function adoption_command(company bigint, submission bigint) returns text
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select format('python run.py resolve-submission %s --company %s --received %s',
                  submission,
                  company,
                  string_agg(f.uuid, ' ' order by d.id))
      from public.submitted_documents d
      left join public.findings f
             on f.company_id = d.company_id
             and f.submitted_document_id = d.id
             and f.kind = 'adoptable'
             and f.resolved_at is null
     where d.company_id = company
       and d.submission_id = submission
       and d.status in ('Submitting', 'Submitted', 'Valid')
    having count(*) = count(f.uuid) and count(*) = count(distinct d.id);
  end;
call run_across_companies('adoption_command', for_service => false);
comment on function adoption_command is
  'Command that adopts all documents of a submission that needs a person. Null unless exactly one '
  'listed document was found for each open document.';
