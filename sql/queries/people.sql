-- People who sign in to the dashboard.

-- name: user_account :one
-- Return the person with an email address, null if there is none, and the address as it identifies
-- people, also unknown ones.
select a.account, u.id, u.password_hash, u.form_secret
  from (select lower(:email::text) as account) a
  left join users u on lower(u.email) = a.account;

-- name: user_insert :value
-- Store a person, or find the one with the email address, and lock the row until the transaction
-- ends. Return the id.
insert into users (id, email, name)
values (coalesce((select id_base from cells), 0) + nextval(pg_get_serial_sequence('users', 'id')),
        :email, :name)
    on conflict (lower(email)) do update
   set updated_at = users.updated_at
returning id;

-- name: user_set_password :exec
-- Store the hash of a new password. Null makes the present one void.
with stored as (
  update users
     set password_hash = :password_hash, updated_at = clock_timestamp()
   where id = :user_id
  returning id, password_hash
)
insert into user_audit_log (user_id, action)
select id, case when password_hash is null then 'reset' else 'password' end from stored;

-- name: user_fail :exec
-- Note that a wrong password was entered for a person. Without a person there is no entry. The
-- commit does not wait for the disk, so that an unknown person takes the same time.
insert into user_audit_log (user_id, action)
select u.id, 'fail'
  from users u, set_config('synchronous_commit', 'off', true)
 where u.id = :user_id;

-- name: user_is_near :value
-- Return whether a person has signed in from a network, given by its :first and :last address, in
-- the last 90 days, and since `link-user` made the password void: another one may have signed in.
select exists (
         select
           from user_audit_log
          where user_id = :user_id
            and action = 'sign_in'
            and client_address between :first::inet and :last::inet
            and at > clock_timestamp() - interval '90 days'
            and id > coalesce(
                  (select max(r.id)
                     from user_audit_log r
                    where r.user_id = :user_id and r.action = 'reset'), 0));

-- name: user_audit_page :many
-- Return the log of a person, the latest first, before the entry :before, without hidden entries.
-- `by_name` is the other person who did it, whose client address is not returned.
select l.id, l.at, l.action, l.company_name, l.actor = 'command' as by_operator, u.name as by_name,
       case when u.id is null then host(l.client_address) end as client_address
  from user_audit_log l
  left join users u
         on u.id <> l.user_id and u.id = substring(l.actor from '^user ([0-9]+)$')::bigint
 where l.user_id = :user_id and l.id < coalesce(:before::bigint, 9223372036854775807)
   and l.id > (select log_hidden from users where id = :user_id)
 order by l.id desc
 limit :most::bigint;

-- name: links_see :exec
-- Note that a person has seen the links that others made, up to an entry of the person's log.
update users u
   set links_seen = l.id
  from user_audit_log l
 where u.id = :user_id
   and l.user_id = u.id
   and l.id = :until
   and l.id > u.links_seen;

-- name: user_lock :one
-- Lock a person until the transaction ends, before roles, links and the password change: a link is
-- used by the roles and the password that the person has then.
select id, name, email, password_hash
  from users
 where id = :user_id
   for no key update;

-- name: member_put :value
-- Give a locked person a role in a company. Return whether it is accepted. The name stays as it is
-- if :name is null. If an accepted role becomes another one, the sessions that show the company
-- end. The company's links for the person become void unless the role stays: those who made them
-- may not be allowed to give the new one. Those that the person made become void too: with the new
-- role they may not be allowed.
with former as (
  select company_id, role, name, accepted_at
    from company_members
   where company_id = :company_id and user_id = :user_id
), stored as (
  insert into company_members (company_id, user_id, role, name)
  values (:company_id, :user_id, :role, coalesce(:name, (select name from former)))
      on conflict (company_id, user_id) do update
     set role = excluded.role, name = excluded.name, updated_at = clock_timestamp()
  returning user_id, role, accepted_at
), ended as (
  update user_sessions s
     set ended_at = clock_timestamp()
    from former f
   where s.user_id = :user_id
     and s.company = f.company_id
     and s.ended_at is null
     and f.accepted_at is not null
     and f.role <> :role
), voided as (
  update user_links
     set used_at = clock_timestamp()
   where (user_id = :user_id or made_by = :user_id)
     and company = :company_id
     and used_at is null
     and not exists (select from former where role = :role)
), audited as (
  insert into audit_log (company_id, action, subject, changes)
  select :company_id::bigint, 'invite', format('user %s as %s', user_id, role),
         value_changes(jsonb_build_object('role', (select role from former)),
                       jsonb_build_object('role', role))
    from stored
)
select accepted_at is not null from stored;

-- name: member_accept :exec
-- Accept the role of a locked person in a company, if it is pending. With the first role, the
-- person has the name that this company entered: no other company can choose it by an invitation.
with accepted as (
  update company_members
     set accepted_at = clock_timestamp()
   where company_id = :company_id and user_id = :user_id and accepted_at is null
  returning user_id, role, name
), named as (
  update users u
     set name = a.name, updated_at = clock_timestamp()
    from accepted a
   where u.id = a.user_id
     and not exists (
         select
           from roles_of(:user_id) r
          where r.accepted_at is not null and r.company_id <> :company_id)
)
insert into audit_log (company_id, action, subject)
select :company_id::bigint, 'accept', format('user %s as %s', user_id, role) from accepted;

-- name: member_delete :exec
-- Remove a locked person from a company. The sessions that show it end, since they find no
-- membership. Its links for the person, and those that the person made for others, become void. The
-- action is 'remove' or 'leave', which is noted as 'refuse' if the role is pending.
with removed as (
  delete from company_members
   where company_id = :company_id and user_id = :user_id
  returning user_id, role, accepted_at
), voided as (
  update user_links
     set used_at = clock_timestamp()
   where (user_id = :user_id or made_by = :user_id)
     and company = :company_id
     and used_at is null
)
insert into audit_log (company_id, action, subject, changes)
select :company_id::bigint,
       case when :action = 'leave' and accepted_at is null then 'refuse' else :action::text end,
       format('user %s', user_id),
       value_changes(jsonb_build_object('role', role), null)
  from removed;

-- name: members_lock :many
-- Lock and return all people of a company.
select m.user_id, m.role, m.accepted_at
  from company_members m
 where m.company_id = :company_id
 order by m.user_id
   for update;

-- name: member_list :many
-- Return the people of a company. One with a pending role has the name that the company entered.
select m.user_id, case when m.accepted_at is null then m.name else u.name end as name, u.email,
       m.role, m.created_at, m.accepted_at
  from company_members m
  join users u on u.id = m.user_id
 where m.company_id = :company_id
 order by m.created_at, m.user_id;

-- name: session_insert :exec
-- Begin a session of a person, for one of their companies if there is one. The action is 'sign_in'
-- or 'confirm', or null if another statement has noted it. Delete sessions that ended or expired,
-- and links that can no longer be used.
with forgotten_links as (
  delete from user_links where expires_at < clock_timestamp() - interval '30 days'
), forgotten as (
  delete from user_sessions where created_at < clock_timestamp() - interval '30 days'
), audited as (
  insert into user_audit_log (user_id, action)
  select :user_id::bigint, :action::text where :action::text is not null
)
insert into user_sessions (token_sha256, user_id, company, authenticated_at, client_address)
values (:token_sha256, :user_id, :company,
        case when :is_authenticated::boolean then clock_timestamp() end,
        nullif(current_setting('app.client_address', true), '')::inet);

-- name: session_get :one
-- Return a session that has not ended, with the person and the company. A session that shows a
-- company in which the person has no accepted role is none. `links_made` are the latest links that
-- other people made for the person, who has not seen them yet, as JSON text. Note that the session
-- is used, at most once a minute.
with found as (
  select s.id, s.user_id, u.name, u.email, u.form_secret,
         u.password_hash is not null as has_password,
         m.company_id, m.name as company_name, m.role,
         coalesce(s.authenticated_at > clock_timestamp() - :recent::interval, false) as is_recent,
         (select coalesce(json_agg(to_json(made)), '[]')::text
            from (select l.id, instant(l.at) as at, l.company_name, b.name as by_name
                    from user_audit_log l
                    join users b on b.id = substring(l.actor from '^user ([0-9]+)$')::bigint
                   where l.user_id = u.id
                     and l.action = 'link'
                     and l.id > u.links_seen
                   order by l.id desc
                   limit 3) made) as links_made
    from user_sessions s
    join users u on u.id = s.user_id
    left join lateral roles_of(s.user_id) m
           on m.company_id = s.company and m.accepted_at is not null
   where s.token_sha256 = :token_sha256
     and s.ended_at is null
     and s.seen_at > clock_timestamp() - :idle::interval
     and s.created_at > clock_timestamp() - :longest::interval
     and (m.company_id is not null or s.company is null)
), used as (
  update user_sessions s
     set seen_at = clock_timestamp()
    from found f
   where s.token_sha256 = :token_sha256
     and s.id = f.id
     and s.seen_at < clock_timestamp() - interval '1 minute'
)
select * from found;

-- name: session_set_company :value
-- Show another company of the person, or none if it is null. No row: the person has no accepted
-- role in it.
update user_sessions
   set company = :company
 where token_sha256 = :token_sha256
   and (:company::bigint is null
        or exists (
           select
             from roles_of(:user_id) m
            where m.company_id = :company and m.accepted_at is not null))
returning id;

-- name: session_list :many
-- Return the sessions of a person that have not ended or expired, the one used last first.
select id, created_at, seen_at, host(client_address) as client_address,
       token_sha256 = :token_sha256 as is_this
  from user_sessions
 where user_id = :user_id
   and ended_at is null
   and seen_at > clock_timestamp() - :idle::interval
   and created_at > clock_timestamp() - :longest::interval
 order by seen_at desc, id
 limit 100;

-- name: session_end :value
-- End a session of a person, unless it has ended, and return its id. No row if the person has no
-- such session.
update user_sessions
   set ended_at = coalesce(ended_at, clock_timestamp())
 where user_id = :user_id and id = :id
returning id;

-- name: session_keep :value
-- Keep a session open until the transaction ends, and return its id. No row if it has ended.
select id from user_sessions where token_sha256 = :token_sha256 and ended_at is null for share;

-- name: sessions_end :many
-- End all sessions of a person, except the :kept one if it is not null, and return them.
update user_sessions
   set ended_at = clock_timestamp()
 where user_id = :user_id and token_sha256 is distinct from :kept and ended_at is null
returning token_sha256;

-- name: link_insert :exec
-- Store a link, which replaces the earlier ones of its company. An operator's has no company.
with replaced as (
  update user_links
     set used_at = clock_timestamp()
   where user_id = :user_id and company is not distinct from :company and used_at is null
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company::bigint, 'link', format('user %s', :user_id::bigint)
   where :company::bigint is not null
), audited_for_person as (
  insert into user_audit_log (user_id, action, company, company_name)
  select :user_id::bigint, 'link', :company::bigint,
         (select name from companies where id = :company::bigint)
)
insert into user_links (token_sha256, user_id, purpose, company, made_by, expires_at)
values (:token_sha256, :user_id, :purpose, :company, :made_by,
        clock_timestamp() + :lifetime::interval);

-- name: link_get :one
-- Return a link that was not used, replaced or made void, and has not expired.
select l.user_id, l.purpose, l.company as company_id, l.created_at, u.name, u.email, u.password_hash
  from user_links l
  join users u on u.id = l.user_id
 where l.token_sha256 = :token_sha256
   and l.used_at is null
   and l.expires_at > clock_timestamp();

-- name: link_use :exec
-- Use a link of a locked person. It and the older ones, of all companies, become void. If a link of
-- a company sets the password, hide the person's log so far, unless it is all of this company.
with used as (
  update user_links
     set used_at = clock_timestamp()
   where user_id = :user_id
     and used_at is null
     and (token_sha256 = :token_sha256 or created_at < :created_at)
  returning token_sha256, company
), hidden as (
  update users u
     set log_hidden = l.id, links_seen = l.id
    from (select max(id) as id from user_audit_log where user_id = :user_id) l
   where :sets_password::boolean
     and u.id = :user_id
     and exists (
         select
           from user_audit_log o
           join used on used.token_sha256 = :token_sha256 and o.company <> used.company
          where o.user_id = :user_id and o.id > u.log_hidden)
)
insert into user_audit_log (user_id, action, company, company_name)
select :user_id::bigint, 'use_link', u.company,
       (select c.name from companies c where c.id = u.company)
  from used u
 where u.token_sha256 = :token_sha256;

-- name: links_void :exec
-- Make all links of a person void, and those that the person made for others: if somebody else used
-- the account, these are in their hands.
update user_links
   set used_at = clock_timestamp()
 where (user_id = :user_id or made_by = :user_id) and used_at is null;
