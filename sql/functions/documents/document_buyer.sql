-- Inlined into its callers, which pass the company as a subquery: it is read for self-billed
-- documents only.
create or replace function document_buyer(type text, given json, company json) returns json
  immutable parallel safe language sql
  return case when type like '%SELF_BILLED%' then company else given end;
comment on function document_buyer is
  'The buyer of a document: the given one, or the company if the document is self-billed.';
