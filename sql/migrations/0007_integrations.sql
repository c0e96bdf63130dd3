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
call keep_apart('integration_users', 'select, insert, update', 'account_id = current_account()');
call describe('integration_users', '
  Users of an account. Written by the integration surface.

  name: Name.
  email: Email address, unique in the account without regard to case.
  role: owner, admin or member.
');

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
call keep_apart('organizations', 'select, insert, update', 'account_id = current_account()');
call describe('organizations', '
  Organizations of an account. Written by the integration surface.

  name: Name.
  email: Email address. Null: none.
  phone: Phone number. Null: none.
');

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
call keep_apart(
  'organization_members', 'select, insert, update (role), delete',
  'account_id = current_account()');
call describe('organization_members', '
  Users in organizations. Written by the integration surface.

  organization_id: Organization.
  user_id: User.
  role: Role in this organization: owner, admin or member.
');

create table organization_companies (
  account_id bigint not null,
  organization_id text not null,
  company_id bigint not null references companies,
  primary key (account_id, organization_id, company_id),
  foreign key (account_id, organization_id) references organizations (account_id, id)
);
call keep_apart('organization_companies', 'select, insert', 'account_id = current_account()');
-- linked_companies() shows the names and TINs of companies that are linked within the current
-- account. Its owner sees no other links, and through them no other companies.
create policy links_of_account on organization_companies to einvoice_across
  using (account_id = current_account());
grant select on organization_companies to einvoice_across;
call describe('organization_companies', '
  Companies that an operator linked to an organization.

  organization_id: Organization.
');
