-- The integration surface: users and organizations of accounts.

create table integration_users (
  account_id bigint not null references accounts,
  id text not null,
  name text not null,
  email text not null,
  role text not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (account_id, id),
  constraint integration_users_role check (role in ('owner', 'admin', 'member'))
);
create unique index integration_users_email_once on integration_users (account_id, lower(email));
create index integration_users_by_age on integration_users (account_id, created_at, id);
call keep_apart('integration_users', 'account_id = current_account()');
grant select, insert, update on integration_users to einvoice_service;
grant select on integration_users to einvoice_reader;
comment on table integration_users is 'Users of an account. Written by the integration surface.';
comment on column integration_users.account_id is 'Account of the user.';
comment on column integration_users.id is 'Identifies the user.';
comment on column integration_users.name is 'Name.';
comment on column integration_users.email is
  'Email address, unique in the account without regard to case.';
comment on column integration_users.role is 'owner, admin or member.';
comment on column integration_users.created_at is 'When the user was created.';
comment on column integration_users.updated_at is 'When the row was last changed.';

create table organizations (
  account_id bigint not null references accounts,
  id text not null,
  name text not null,
  email text,
  phone text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (account_id, id)
);
create index organizations_by_age on organizations (account_id, created_at, id);
call keep_apart('organizations', 'account_id = current_account()');
grant select, insert, update on organizations to einvoice_service;
grant select on organizations to einvoice_reader;
comment on table organizations is
  'Organizations of an account. Written by the integration surface.';
comment on column organizations.account_id is 'Account of the organization.';
comment on column organizations.id is 'Identifies the organization.';
comment on column organizations.name is 'Name.';
comment on column organizations.email is 'Email address. Null: none.';
comment on column organizations.phone is 'Phone number. Null: none.';
comment on column organizations.created_at is 'When it was created.';
comment on column organizations.updated_at is 'When the row was last changed.';

create table organization_members (
  account_id bigint not null,
  organization_id text not null,
  user_id text not null,
  role text not null,
  primary key (account_id, organization_id, user_id),
  foreign key (account_id, organization_id) references organizations (account_id, id),
  foreign key (account_id, user_id) references integration_users (account_id, id),
  constraint organization_members_role check (role in ('owner', 'admin', 'member'))
);
create index organization_members_by_user on organization_members (account_id, user_id);
call keep_apart('organization_members', 'account_id = current_account()');
grant select, insert, update (role), delete on organization_members to einvoice_service;
grant select on organization_members to einvoice_reader;
comment on table organization_members is
  'Users in organizations. Written by the integration surface.';
comment on column organization_members.account_id is 'Account of both.';
comment on column organization_members.organization_id is 'Organization.';
comment on column organization_members.user_id is 'User.';
comment on column organization_members.role is 'Role in this organization: owner, admin or member.';

create table organization_companies (
  account_id bigint not null,
  organization_id text not null,
  company_id bigint not null references companies,
  primary key (account_id, organization_id, company_id),
  foreign key (account_id, organization_id) references organizations (account_id, id)
);
create index organization_companies_by_company on organization_companies (account_id, company_id);
call keep_apart('organization_companies', 'account_id = current_account()');
grant select, insert on organization_companies to einvoice_service;
-- linked_companies() shows the names and TINs of companies that are linked within the current
-- account. Its owner sees no other links, and through them no other companies.
create policy links_of_account on organization_companies to einvoice_across
  using (account_id = current_account());
grant select on organization_companies to einvoice_across;
grant select on organization_companies to einvoice_reader;
create policy linked_to_account on companies to einvoice_across using (
  exists (select
            from organization_companies l
           where l.company_id = companies.id
             and l.account_id = current_account()));
comment on table organization_companies is 'Companies that an operator linked to an organization.';
comment on column organization_companies.account_id is 'Account of the organization.';
comment on column organization_companies.organization_id is 'Organization.';
comment on column organization_companies.company_id is 'Company.';
