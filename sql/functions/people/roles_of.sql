create or replace function roles_of(wanted bigint)
  returns table (company_id bigint, name text, role text, accepted_at timestamptz)
  volatile security definer set search_path = pg_catalog, public language plpgsql as $$
#variable_conflict use_column
declare
  former text := coalesce(current_setting('app.user_lookup', true), '');
begin
  perform set_config('app.user_lookup', wanted::text, true);
  return query
  select m.company_id, c.name, m.role, m.accepted_at
    from public.company_members m
    join public.companies c on c.id = m.company_id
   where m.user_id = wanted
   order by c.name, c.id;
  perform set_config('app.user_lookup', former, true);
end $$;
call run_across_companies('roles_of');
comment on function roles_of is
  'Roles of one person in all companies, with the companies'' names, also pending ones, which give '
  'no right. Rights need memberships_of().';
