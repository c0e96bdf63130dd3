-- State of the administration API, tokens, rate limits, counts.

-- name: state_get :value
select value from state;

-- name: state_put :exec
insert into state (id, value)
values (1, :value)
    on conflict (id) do update set value = excluded.value;

-- name: token_insert :exec
insert into tokens (token, client_id, taxpayer, represented, expires_at)
values (:token, :client_id, :taxpayer, :represented, :expires_at);

-- name: token_get :one
-- Return a valid token. No row: it is unknown or expired.
select client_id, taxpayer, represented from tokens where token = :token and expires_at > :now;

-- name: token_expire_all :exec
update tokens set expires_at = 0;

-- name: quota_take :one
-- Count one request in the current window, or begin a new one.
insert into quotas (name, subject, started_at, used) values (:name, :subject, :now, 1)
on conflict (name, subject) do update
   set used = case when started_at + :span <= :now then 1 else used + 1 end,
       started_at = case when started_at + :span <= :now then :now else started_at end
returning started_at, used;

-- name: request_count :exec
insert into requests (operation, status, count, last_at) values (:operation, :status, 1, :now)
on conflict (operation, status) do update set count = count + 1, last_at = excluded.last_at;

-- name: request_counts :many
select operation, status, count, last_at from requests order by operation, status;
