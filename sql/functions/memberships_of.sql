create or replace function memberships_of(wanted bigint)
  returns table (company_id bigint, name text, role text)
  volatile language sql as $$
  select r.company_id, r.name, r.role
    from roles_of(wanted) r
   where r.accepted_at is not null
   order by r.name, r.company_id;
$$;
alter function memberships_of owner to einvoice_across;
revoke all on function memberships_of from public;
grant execute on function memberships_of to einvoice_service;
comment on function memberships_of is
  'Companies whose role a person has accepted, with their names and the role in each.';
