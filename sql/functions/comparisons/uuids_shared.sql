create or replace function uuids_shared(company bigint, uuids text[]) returns table (uuid text)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select d.uuid
      from public.submitted_documents d
     where d.uuid = any (uuids) and d.company_id <> company
    union
    select e.uuid
      from public.portal_sightings e
     where e.uuid = any (uuids) and e.company_id <> company and e.via in ('submit', 'search');
  end;
call run_across_companies('uuids_shared');
comment on function uuids_shared is
  'Those of some uuids that other companies have recorded as theirs: in a submitted document or '
  'as a sighting.';
