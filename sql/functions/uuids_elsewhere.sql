create or replace function uuids_elsewhere(company bigint, uuids text[]) returns table (uuid text)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select d.uuid
      from public.submitted_documents d
     where d.uuid = any (uuids) and d.company_id <> company;
  end;
alter function uuids_elsewhere owner to einvoice_across;
revoke all on function uuids_elsewhere from public;
grant execute on function uuids_elsewhere to einvoice_service;
comment on function uuids_elsewhere is
  'Those of some uuids that submitted documents of other companies have.';
