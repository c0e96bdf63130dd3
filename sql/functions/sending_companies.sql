create or replace function sending_companies() returns table (company_id bigint)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select distinct k.company_id from public.api_keys k order by k.company_id;
  end;
alter function sending_companies owner to einvoice_across;
revoke all on function sending_companies from public;
grant execute on function sending_companies to einvoice_service;
comment on function sending_companies is
  'Ids of the companies that have an API key and so can send, in ascending order.';
