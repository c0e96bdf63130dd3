create or replace function submissions_numbered(company bigint, number text)
  returns table (document text, submitted_document bigint)
  stable parallel safe language sql
  begin atomic
    select document_name(k.kind, k.id), d.id
      from documents_numbered(company, number) k
      join submitted_documents d on d.company_id = company and d.document_id = k.id;
  end;
comment on function submissions_numbered is
  'Names of the documents of a company with this number, with each of their submitted documents.';
