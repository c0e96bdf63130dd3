-- tin_is_shared() finds companies by their normalised TIN, as everything else does since 0025. The earlier index and
-- function are not needed any more, and neither is the policy that let einvoice_across read the TINs of all companies.

create or replace function tin_is_shared(company bigint, own_tin text) returns boolean
  volatile security definer set search_path = pg_catalog, public language sql
  begin atomic
    select exists (select from unnest(public.companies_of_tin(own_tin)) as c (id) where c.id <> company)
        or exists (select from public.submissions s where s.tin = own_tin and s.company_id < company)
        or exists (select from public.submissions s where s.tin = own_tin and s.company_id > company);
  end;

drop policy tins_across_companies on companies;
drop index companies_by_comparable_tin;
drop function comparable_tin(text);
