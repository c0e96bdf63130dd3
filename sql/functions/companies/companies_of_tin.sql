create or replace function companies_of_tin(wanted text) returns bigint[]
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
declare
  former text := coalesce(current_setting('app.tin_lookup', true), '');
  holders bigint[];
begin
  perform set_config('app.tin_lookup', wanted, true);
  holders := array(
    select c.id
      from public.companies c
     where c.tin = wanted and wanted <> '' and c.tin_verified_at is not null
     order by c.id);
  perform set_config('app.tin_lookup', former, true);
  return holders;
end $$;
call run_across_companies('companies_of_tin');
comment on function companies_of_tin is
  'Ids of the companies for which this exact normalised TIN is verified, in ascending order.';
