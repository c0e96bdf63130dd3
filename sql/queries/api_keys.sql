-- API keys of companies and accounts, and their quotas. Every statement takes the kind and the id
-- of the owner, so that keys of others are not found.

-- name: api_key_insert :value
-- Insert a key and return its id. No row if the owner has :most valid keys: those that are neither
-- revoked nor expired. Run company_lock in a statement before; see webhook_insert.
with inserted as (
  insert into api_keys (owner_kind, owner_id, key_id, name, secret_sha256, expires_at)
  select :owner_kind, :owner_id, :key_id, :name, :secret_sha256, :expires_at
   where :most::bigint is null
      or :most > (select count(*)
                    from api_keys
                   where owner_kind = :owner_kind and owner_id = :owner_id
                     and revoked_at is null
                     and (expires_at is null or expires_at > clock_timestamp()))
  returning company_id, account_id, key_id, name, expires_at
), audited as (
  insert into audit_log (company_id, account_id, action, subject, changes)
  select company_id, account_id, 'create', format('key %s', key_id),
         value_changes(null, jsonb_build_object('name', name, 'expires_at', expires_at))
    from inserted
)
select key_id from inserted;

-- name: api_key_list :many
-- Return the keys of an owner, the newest first.
select key_id, name, created_at, expires_at, revoked_at, last_used_at
  from api_keys
 where owner_kind = :owner_kind and owner_id = :owner_id
 order by revoked_at is not null, created_at desc, key_id
 limit 200;

-- name: api_key_revoke :value
-- Revoke a key. Returns true if the key was not revoked before, and null if the owner has no such
-- key. A trigger notifies every process.
with revoked as (
  update api_keys
     set revoked_at = clock_timestamp()
   where owner_kind = :owner_kind and owner_id = :owner_id and key_id = :key_id
     and revoked_at is null
  returning company_id, account_id, key_id
), audited as (
  insert into audit_log (company_id, account_id, action, subject)
  select company_id, account_id, 'revoke', format('key %s', key_id) from revoked
)
select exists (select from revoked)
  from api_keys
 where owner_kind = :owner_kind and owner_id = :owner_id and key_id = :key_id;

-- name: api_key_used :value
-- Record the use of a key, at most once a minute for all processes. With its first use of a day,
-- return the days until it expires if they are at most 14; else null.
update api_keys k
   set last_used_at = date_trunc('minute', clock_timestamp())
  from api_keys former
 where k.owner_kind = :owner_kind and k.owner_id = :owner_id and k.key_id = :key_id
   and former.owner_kind = :owner_kind and former.owner_id = :owner_id and former.key_id = :key_id
   and k.last_used_at is distinct from date_trunc('minute', clock_timestamp())
returning case
            when coalesce(former.last_used_at < current_date, true)
                 and k.expires_at < clock_timestamp() + interval '14 days'
            then extract(epoch from k.expires_at - clock_timestamp()) / 86400
          end as days;

-- name: key_quota_take :one
-- Count one request of a key against :quota requests a minute. The minute begins with its first
-- request. `wait` is the rest of the minute in seconds if the quota is used up, else null; `reset`
-- is the end of the minute as Unix time.
insert into key_quotas as q (owner_kind, owner_id, key_id, ends_at, used)
values (:owner_kind, :owner_id, :key_id, clock_timestamp() + interval '1 minute', 1)
    on conflict (owner_kind, owner_id, key_id) do update
   set used = case when q.ends_at <= excluded.ends_at - interval '1 minute' then 1
                   else least(q.used, :quota::int) + 1 end,
       ends_at = case when q.ends_at <= excluded.ends_at - interval '1 minute'
                      then excluded.ends_at
                      else q.ends_at end
returning greatest(0, :quota::int - used) as remaining,
          ceil(extract(epoch from ends_at))::bigint as reset,
          case when used > :quota::int
               then greatest(1, ceil(extract(epoch from ends_at - clock_timestamp())))::int
               end as wait;
