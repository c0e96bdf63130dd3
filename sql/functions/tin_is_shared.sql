create or replace function tin_is_shared(company bigint, own_tin text) returns boolean
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    select exists (select
                     from unnest(public.companies_of_tin(own_tin)) as c (id)
                    where c.id <> company)
        or exists (select
                     from public.submissions s
                    where s.tin = own_tin and s.company_id < company)
        or exists (select
                     from public.submissions s
                    where s.tin = own_tin and s.company_id > company);
  end;
alter function tin_is_shared owner to einvoice_across;
revoke all on function tin_is_shared from public;
grant execute on function tin_is_shared to einvoice_service;
comment on function tin_is_shared is
  'Whether the normalised TIN is verified for another company, or another company has ever written '
  'a submission under it.';
