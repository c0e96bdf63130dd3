-- A role holds only once the person has accepted it through a link of the company that gave it. In
-- earlier versions a link of any company set the password for all companies of the person, so that
-- none of them may run after this migration.
--
-- It reads rows of all companies, which the owner of the tables otherwise does not see.

alter table company_members no force row level security;
alter table audit_log no force row level security;
alter table companies no force row level security;

alter table company_members add column accepted_at timestamptz;
grant update (accepted_at) on company_members to einvoice_service;
grant update (accepted_at), delete on company_members to einvoice_across;
comment on column company_members.created_at is 'When the role was first given.';
comment on column company_members.accepted_at is
  'When the person accepted the role through a link of the company. Null: it is pending and gives '
  'no right.';

-- Functions write what a person did to the audit log of each company. They cannot read it.
create policy written_across on audit_log for insert to einvoice_across with check (true);
grant insert (company_id, action, subject, changes) on audit_log to einvoice_across;

update company_members m
   set accepted_at = m.created_at
 where not exists (select
                     from company_members o
                    where o.user_id = m.user_id and o.company_id <> m.company_id);

-- Which link set a password was not stored. An administrator could only make a link for a person
-- who had a role in no other company. So the password is that of the company that invited the
-- person first, as long as it has not removed the person since, or that of the operator. Other
-- roles of people with several, and all roles of those for whom this is not known, are pending.
with several as (
  select m.user_id
    from company_members m
    join users u on u.id = m.user_id
   where u.password_hash is not null
   group by m.user_id
  having count(*) > 1
), entries as (
  select s.user_id, a.company_id, a.id, a.at, a.action
    from several s
   cross join companies c
    join audit_log a
      on a.company_id = c.id
     and a.subject in (format('user %s', s.user_id),
                       format('user %s as owner', s.user_id),
                       format('user %s as admin', s.user_id),
                       format('user %s as member', s.user_id),
                       format('user %s as reader', s.user_id))
   where a.action in ('invite', 'remove')
), firsts as (
  select distinct on (user_id) user_id, company_id
    from entries
   where action = 'invite'
   order by user_id, at, company_id, id
)
update company_members m
   set accepted_at = m.created_at
  from firsts f
 where f.user_id = m.user_id
   and f.company_id = m.company_id
   and not exists (select
                     from entries e
                    where e.user_id = f.user_id
                      and e.company_id = f.company_id
                      and e.action = 'remove');

alter table company_members force row level security;
alter table audit_log force row level security;
alter table companies force row level security;

alter table user_links add column company bigint, add column made_by bigint references users;
-- Whose links these are is not known.
update user_links set used_at = clock_timestamp() where used_at is null;
grant select (company, made_by) on user_links to einvoice_reader;
comment on table user_links is
  'One-time links, by which a person accepts the role in a company, and chooses a password if no '
  'other company has given the person a role.';
comment on column user_links.purpose is
  'password: choose a password and sign in. sign_in: sign in without one, for the demo company.';
comment on column user_links.company is
  'Company whose role the link is for. Null: the operator made it for the person.';
comment on column user_links.made_by is 'Person who made the link. Null: the operator.';
comment on column user_links.used_at is
  'When the link was used, replaced or made void. Null: none of these.';

alter table user_sessions
  add column id bigint generated always as identity,
  add column client_address inet,
  alter column company drop not null,
  alter column authenticated_at drop not null,
  alter column authenticated_at drop default;
grant select (id, client_address) on user_sessions to einvoice_reader;
comment on column user_sessions.id is 'Identifies the session for the person.';
comment on column user_sessions.company is
  'Company that the session shows now. Null: the person has accepted no role.';
comment on column user_sessions.authenticated_at is
  'When the password was last entered. Null: the session came from a link without one.';
comment on column user_sessions.client_address is
  'Address of the client that signed in. Null: not known.';
