-- Taxpayers, clients and tokens.

-- name: taxpayer_get :one
select tin, name, blocked from taxpayers where tin = :tin;

-- name: taxpayer_put :exec
insert into taxpayers (tin, name, blocked) values (:tin, :name, :blocked)
on conflict (tin) do update set name = excluded.name, blocked = excluded.blocked;

-- name: taxpayer_meet :exec
-- Register an unknown taxpayer. A known one keeps its name.
insert into taxpayers (tin, name) values (:tin, :name) on conflict do nothing;

-- name: taxpayer_find :many
-- Return the TINs that match every criterion that is not null. File type 1: individuals.
select t.tin from taxpayers t
 where (:name is null or lower(t.name) = lower(:name))
   and (:file_type is null or (t.tin like 'IG%') = (:file_type = '1'))
   and (:type is null or exists (select 1 from identities i
                                  where i.tin = t.tin and i.type = :type and i.value = :value))
 order by t.tin;

-- name: taxpayer_list :many
select tin, name, blocked from taxpayers order by tin;

-- name: profile_put :exec
insert into profiles (tin, members) values (:tin, :members)
on conflict (tin) do update set members = excluded.members;

-- name: profile_get :value
select members from profiles where tin = :tin;

-- name: identity_put :exec
insert into identities (tin, type, value) values (:tin, :type, :value) on conflict do nothing;

-- name: identity_forget :exec
delete from identities where tin = :tin;

-- name: identity_list :many
select type, value from identities where tin = :tin order by type, value;

-- name: client_get :one
select client_id, client_secret, tin, intermediary, represents, blocked
  from clients
 where client_id = :client_id;

-- name: client_put :exec
insert into clients (client_id, client_secret, tin, intermediary, represents, blocked)
values (:client_id, :client_secret, :tin, :intermediary, :represents, :blocked)
on conflict (client_id) do update
   set client_secret = excluded.client_secret, tin = excluded.tin,
       intermediary = excluded.intermediary, represents = excluded.represents,
       blocked = excluded.blocked;

-- name: token_insert :exec
insert into tokens (token, client_id, taxpayer, represented, expires_at)
values (:token, :client_id, :taxpayer, :represented, :expires_at);

-- name: token_get :one
-- Return a valid token. No row: it is unknown or expired.
select t.client_id, t.taxpayer, t.represented, c.tin as client_tin
  from tokens t join clients c using (client_id)
 where t.token = :token and t.expires_at > :now;

-- name: token_expire_all :exec
update tokens set expires_at = 0;
