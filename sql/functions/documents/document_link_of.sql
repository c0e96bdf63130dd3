-- A link is looked up before its company is known. Nothing else of other companies is readable.
create or replace function document_link_of(wanted bytea)
  returns table (company_id bigint, id bigint, purpose text, kind text, document_id bigint)
  stable rows 1 language sql
  begin atomic
    select l.company_id, l.id, l.purpose, l.kind, l.document_id
      from document_links l
     where l.token_sha256 = wanted
       and l.revoked_at is null
       and l.expires_at > clock_timestamp();
  end;
call run_across_companies('document_link_of');
comment on function document_link_of is
  'Company and document of the link with this token, if it can be used. No row: it cannot.';
