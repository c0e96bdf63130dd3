create or replace function tin_is_shared(company bigint, own_tin text) returns boolean
  volatile language sql
  begin atomic
    -- The smallest and the largest id are looked up by index, and not those of all submissions.
    select not array_remove(
             companies_of_tin(own_tin) || min(s.company_id) || max(s.company_id), null)
             <@ array[company]
      from submissions s
     where s.tin = own_tin;
  end;
call run_across_companies('tin_is_shared');
comment on function tin_is_shared is
  'Whether the normalised TIN is verified for another company, or another company has ever written '
  'a submission under it.';
