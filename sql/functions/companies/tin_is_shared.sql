create or replace function tin_is_shared(company bigint, own_tin text) returns boolean
  volatile language sql
  begin atomic
    select exists (select
                     from unnest(companies_of_tin(own_tin)) as c (id)
                    where c.id <> company)
        or exists (select
                     from submissions s
                    where s.tin = own_tin and s.company_id < company)
        or exists (select
                     from submissions s
                    where s.tin = own_tin and s.company_id > company);
  end;
call run_across_companies('tin_is_shared');
comment on function tin_is_shared is
  'Whether the normalised TIN is verified for another company, or another company has ever written '
  'a submission under it.';
