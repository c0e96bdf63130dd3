create or replace function sending_companies() returns table (company_id bigint)
  stable security definer set search_path = pg_catalog, public language sql
  begin atomic
    select distinct k.company_id
      from public.api_keys k
     where not exists (select from public.company_moves m where m.company_id = k.company_id)
     order by k.company_id;
  end;
alter function sending_companies owner to einvoice_across;
revoke all on function sending_companies from public;
grant execute on function sending_companies to einvoice_service;
comment on function sending_companies is
  'Ids of the companies that have an API key and so can send, in ascending order. Companies that '
  'are being moved to or from another cell, or have left, are not among them.';
