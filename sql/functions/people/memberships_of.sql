create or replace function memberships_of(wanted bigint)
  returns table (company_id bigint, name text, role text)
  volatile language sql as $$
  select r.company_id, r.name, r.role
    from roles_of(wanted) r
   where r.accepted_at is not null
   order by r.name, r.company_id;
$$;
call run_across_companies('memberships_of');
comment on function memberships_of is
  'Companies whose role a person has accepted, with their names and the role in each.';
