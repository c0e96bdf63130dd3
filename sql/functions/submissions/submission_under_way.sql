-- Not inlined, so that only the records of documents without an outcome pay for the look-up.
create or replace function submission_under_way(company_id bigint, document_id bigint) returns json
  stable language sql
  return (select submission_outcome(d.status, s.last_error, d.updated_at)
            from submitted_documents d
            join submissions s on s.company_id = d.company_id and s.id = d.submission_id
           where d.company_id = submission_under_way.company_id
             and d.document_id = submission_under_way.document_id
           order by d.id desc
           limit 1);
comment on function submission_under_way is
  'The latest submission of a document that has no outcome yet, as records show it, with its last '
  'transient error.';
