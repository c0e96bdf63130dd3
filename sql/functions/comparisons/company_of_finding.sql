-- For operators, who read the id in a list of all companies.
create or replace function company_of_finding(finding bigint) returns bigint
  stable language sql
  return (select f.company_id from findings f where f.id = finding);
call run_across_companies('company_of_finding');
comment on function company_of_finding is
  'Company of a finding. Null when there is no such finding.';
