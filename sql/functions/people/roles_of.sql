create or replace function roles_of(wanted bigint)
  returns table (company_id bigint, name text, role text, accepted_at timestamptz)
  stable language sql
  begin atomic
    select m.company_id, c.name, m.role, m.accepted_at
      from company_members m
      join companies c on c.id = m.company_id
     where m.user_id = wanted
     order by c.name, c.id;
  end;
call run_across_companies('roles_of');
comment on function roles_of is
  'Roles of one person in all companies, with the companies'' names, also pending ones, which have '
  'no accepted_at and give no right.';
