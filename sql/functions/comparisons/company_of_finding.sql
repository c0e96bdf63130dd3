-- For operators, who read the id in a list of all companies.
create or replace function company_of_finding(finding bigint) returns bigint
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select f.company_id from public.findings f where f.id = finding;
  end;
call run_across_companies('company_of_finding');
comment on function company_of_finding is
  'Company of a finding. Null when there is no such finding.';
