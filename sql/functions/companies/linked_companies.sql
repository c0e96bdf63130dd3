create or replace function linked_companies(organization text)
  returns table (id bigint, name text, tin_code text)
  stable language sql
  begin atomic
    select c.id, c.name, c.tin_code
      from organization_companies l
      join companies c on c.id = l.company_id
     where l.account_id = current_account() and l.organization_id = organization;
  end;
call run_across_companies('linked_companies');
comment on function linked_companies is
  'Id, name and TIN of the companies that are linked to an organization of the current account.';
