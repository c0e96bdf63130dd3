create or replace function companies_of_tin(wanted text) returns bigint[]
  stable language sql
  return array(
    select c.id
      from companies c
     where c.tin = wanted and wanted <> '' and c.tin_verified_at is not null
     order by c.id);
call run_across_companies('companies_of_tin');
comment on function companies_of_tin is
  'Ids of the companies for which this exact normalised TIN is verified, in ascending order.';
