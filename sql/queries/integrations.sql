-- Accounts with their users and organizations. Every statement takes :account_id, so
-- that rows of other accounts are not found, except statements that look up an account.

-- name: account_insert :value
-- Insert an account and return its id. No row if the name is taken.
insert into accounts (id, name) values (:account_id, :name)
    on conflict (name) do nothing
returning id;

-- name: integration_user_insert :exec
-- Insert a user. Can violate integration_users_email_once, which ignores case.
insert into integration_users (account_id, id, name, email, role)
values (:account_id, :id, :name, :email, :role);

-- name: integration_user_get :value
select record from integration_user_records where account_id = :account_id and id = :id;

-- name: integration_user_page :one
-- Return `total` and `data`, a JSON array of records, newest first, of the users with :query in
-- their name or email address.
with found as (
  select id, created_at
    from integration_users
   where account_id = :account_id
     and (:query::text is null
          or position(lower(:query) in lower(name)) > 0
          or position(lower(:query) in lower(email)) > 0)
)
select (select count(*) from found) as total,
       (select coalesce(json_agg(r.record order by page.created_at desc, page.id desc), '[]')
          from (select id, created_at
                  from found
                 order by created_at desc, id desc
                 limit :per_page::bigint offset :offset::bigint) page
          join integration_user_records r on r.account_id = :account_id and r.id = page.id) as data;

-- name: integration_user_lock :value
-- Lock a user for a change and return true. Read the record in a later statement, which sees what
-- the previous holder of the lock committed.
select true from integration_users where account_id = :account_id and id = :id for no key update;

-- name: integration_user_update :value
-- Update a user and return true. A null member stays unchanged. Can violate
-- integration_users_email_once.
update integration_users
   set name = coalesce(:name, name), email = coalesce(:email, email), updated_at = clock_timestamp()
 where account_id = :account_id and id = :id
returning true;

-- name: integration_user_organizations :one
-- Return `total` and `data`, the organizations that a user is a member of, newest first. No row if
-- the account has no such user.
select count(o.id) as total,
       coalesce(json_agg(r.record order by o.created_at desc, o.id desc)
                  filter (where o.id is not null), '[]') as data
  from integration_users u
  left join organization_members m on m.account_id = u.account_id and m.user_id = u.id
  left join organizations o on o.account_id = m.account_id and o.id = m.organization_id
  left join organization_records r on r.account_id = o.account_id and r.id = o.id
 where u.account_id = :account_id and u.id = :id
 group by u.id;

-- name: organization_insert :exec
-- Insert an organization that is linked to :companies.
with stored as (
  insert into organizations (account_id, id, name)
  values (:account_id, :id, :name)
  returning account_id, id
)
insert into organization_companies (account_id, organization_id, company_id)
select account_id, id, unnest(:companies::bigint[]) from stored;

-- name: organization_get :value
select record from organization_records where account_id = :account_id and id = :id;

-- name: organization_page :one
-- Return `total` and `data` by name; see integration_user_page.
with found as (
  select id, created_at
    from organizations
   where account_id = :account_id
     and (:query::text is null or position(lower(:query) in lower(name)) > 0)
)
select (select count(*) from found) as total,
       (select coalesce(json_agg(r.record order by page.created_at desc, page.id desc), '[]')
          from (select id, created_at
                  from found
                 order by created_at desc, id desc
                 limit :per_page::bigint offset :offset::bigint) page
          join organization_records r on r.account_id = :account_id and r.id = page.id) as data;

-- name: organization_lock :value
-- Lock an organization for a change; see integration_user_lock.
select true from organizations where account_id = :account_id and id = :id for no key update;

-- name: organization_update :value
-- Update an organization and return true. :body has the members to change; a null member is
-- cleared.
update organizations o
   set name = coalesce(body ->> 'name', o.name),
       email = case when body ? 'email' then body ->> 'email' else o.email end,
       phone = case when body ? 'phone' then body ->> 'phone' else o.phone end,
       updated_at = clock_timestamp()
  from (select :body::jsonb as body) request
 where o.account_id = :account_id and o.id = :id
returning true;

-- name: organization_members_wrong :many
-- Return the position, from 0, of each of :users that is not a user of the account, and then of
-- each repetition, with the rule that it breaks.
with sent as (
  select id, place - 1 as place, row_number() over (partition by id order by place) as time
    from unnest(:users::text[]) with ordinality listed (id, place)
)
select place, 'exists' as rule
  from sent
 where not exists (select
                     from integration_users u
                    where u.account_id = :account_id and u.id = sent.id)
 union all
select place, 'unique' from sent where time > 1
 order by rule, place;

-- name: organization_members_put :exec
-- Replace the members of a locked organization by :users, each of them once. A null in :roles keeps
-- the role of a member; a new member gets the role member.
with gone as (
  delete from organization_members
   where account_id = :account_id and organization_id = :id and user_id <> all (:users::text[])
)
insert into organization_members as m (account_id, organization_id, user_id, role)
select :account_id, :id, sent.user_id, coalesce(sent.role, stays.role, 'member')
  from unnest(:users::text[], :roles::text[]) sent (user_id, role)
  left join organization_members stays
    on stays.account_id = :account_id
   and stays.organization_id = :id
   and stays.user_id = sent.user_id
    on conflict (account_id, organization_id, user_id) do update set role = excluded.role;
