-- People who sign in to the dashboard.

-- name: user_by_email :one
-- Return the person with an email address.
select id, name, email, password_hash
  from users
 where lower(email) = lower(:email);

-- name: user_get :one
select id, name, email, password_hash
  from users
 where id = :user_id;

-- name: user_insert :value
-- Store a person, or find the one with the email address. Return the id.
with stored as (
  insert into users (id, email, name)
  values (id_base() + nextval(pg_get_serial_sequence('users', 'id')), :email, :name)
      on conflict (lower(email)) do nothing
  returning id
)
select id from stored
union all
select id from users where lower(email) = lower(:email)
 limit 1;

-- name: user_set_password :exec
-- Store the hash of a new password.
update users
   set password_hash = :password_hash, updated_at = clock_timestamp()
 where id = :user_id;

-- name: user_memberships :many
-- Return the companies of a person, with their names and the role in each.
select company_id, name, role from memberships_of(:user_id);

-- name: member_put :exec
-- Give a person a role in a company. If it is another one, all sessions of the person end.
with former as (
  select role from company_members where company_id = :company_id and user_id = :user_id
), stored as (
  insert into company_members (company_id, user_id, role)
  values (:company_id, :user_id, :role)
      on conflict (company_id, user_id) do update
     set role = excluded.role, updated_at = clock_timestamp()
  returning user_id, role
), ended as (
  update user_sessions s
     set ended_at = clock_timestamp()
    from former f
   where s.user_id = :user_id and s.ended_at is null and f.role <> :role
)
insert into audit_log (company_id, action, subject, changes)
select :company_id::bigint, 'invite', format('user %s as %s', user_id, role),
       value_changes(jsonb_build_object('role', (select role from former)),
                     jsonb_build_object('role', role))
  from stored;

-- name: member_delete :exec
-- Remove a person from a company. The sessions that show it end, since they find no membership.
with removed as (
  delete from company_members
   where company_id = :company_id and user_id = :user_id
  returning user_id, role
)
insert into audit_log (company_id, action, subject, changes)
select :company_id::bigint, 'remove', format('user %s', user_id),
       value_changes(jsonb_build_object('role', role), null)
  from removed;

-- name: members_lock :many
-- Lock and return all people of a company.
select m.user_id, m.role
  from company_members m
 where m.company_id = :company_id
 order by m.user_id
   for update;

-- name: member_list :many
-- Return the people of a company.
select m.user_id, u.name, u.email, m.role, m.created_at, u.password_hash is not null as has_password
  from company_members m
  join users u on u.id = m.user_id
 where m.company_id = :company_id
 order by m.created_at, m.user_id;

-- name: session_insert :exec
-- Begin a session of a person for one of their companies.
insert into user_sessions (token_sha256, user_id, company)
values (:token_sha256, :user_id, :company);

-- name: session_get :one
-- Return a session that has not ended, with the person and the company. A person who is no longer
-- a member of the company has none.
select s.user_id, u.name, u.email, m.company_id, m.name as company_name, m.role,
       clock_timestamp() - s.authenticated_at as authenticated,
       s.seen_at < clock_timestamp() - interval '1 minute' as is_stale
  from user_sessions s
  join users u on u.id = s.user_id
 cross join lateral memberships_of(s.user_id) m
 where s.token_sha256 = :token_sha256
   and s.ended_at is null
   and s.seen_at > clock_timestamp() - :idle::interval
   and s.created_at > clock_timestamp() - :longest::interval
   and m.company_id = s.company;

-- name: session_touch :exec
-- Note that a session is used.
update user_sessions set seen_at = clock_timestamp() where token_sha256 = :token_sha256;

-- name: session_set_company :exec
-- Show another company of the person.
update user_sessions
   set company = :company
 where token_sha256 = :token_sha256
   and exists (select from memberships_of(:user_id) m where m.company_id = :company);

-- name: session_end :exec
update user_sessions
   set ended_at = clock_timestamp()
 where token_sha256 = :token_sha256 and ended_at is null;

-- name: sessions_end :exec
-- End all sessions of a person.
update user_sessions
   set ended_at = clock_timestamp()
 where user_id = :user_id and ended_at is null;

-- name: session_forget :exec
-- Delete sessions that ended or expired, and links that can no longer be used.
with gone as (
  delete from user_links where expires_at < clock_timestamp() - interval '30 days'
)
delete from user_sessions where created_at < clock_timestamp() - interval '30 days';

-- name: link_insert :exec
-- Store a link, which replaces the earlier ones of its purpose.
with replaced as (
  update user_links
     set used_at = clock_timestamp()
   where user_id = :user_id and purpose = :purpose and used_at is null
)
insert into user_links (token_sha256, user_id, purpose, expires_at)
values (:token_sha256, :user_id, :purpose, clock_timestamp() + :lifetime::interval);

-- name: link_get :one
-- Return a link that can be used.
select l.user_id, l.purpose, u.name, u.email
  from user_links l
  join users u on u.id = l.user_id
 where l.token_sha256 = :token_sha256
   and l.used_at is null
   and l.expires_at > clock_timestamp();

-- name: link_use :value
-- Use a link. Return the person, or nothing if it was used or has expired.
update user_links
   set used_at = clock_timestamp()
 where token_sha256 = :token_sha256 and used_at is null and expires_at > clock_timestamp()
returning user_id;
