-- Logins that the portal refused. They belong to no company, because all share the client id.

-- name: refused_login_wait :value
-- Return how long no login may be tried for a taxpayer. Null: one may be tried.
select retry_at - clock_timestamp()
  from refused_logins
 where client_id = :client_id
   and taxpayer = :taxpayer
   and fingerprint = :fingerprint
   and retry_at > clock_timestamp();

-- name: refused_login_try :one
-- Claim the next try after a refusal for :lease, for one process. `is_known`: a login was refused
-- before. `is_mine`: the caller may try. Otherwise `wait` is the time until another process may.
with mine as (
  update refused_logins
     set retry_at = clock_timestamp() + :lease::interval, is_trying = true
   where client_id = :client_id
     and taxpayer = :taxpayer
     and fingerprint = :fingerprint
     and retry_at <= clock_timestamp()
  returning reason
), known as (
  select retry_at
    from refused_logins
   where client_id = :client_id and taxpayer = :taxpayer and fingerprint = :fingerprint
)
select exists (select from known) as is_known,
       exists (select from mine) or not exists (select from known) as is_mine,
       (select reason from mine) as reason,
       (select greatest(retry_at - clock_timestamp(), interval '1 second') from known) as wait;

-- name: refused_login_note :one
-- Record a refusal and return the pause. `wait` is the time until the next try; `is_new` is false
-- if another process recorded a refusal during the pause. The pause is :first at first and doubles
-- with each refusal, up to :longest.
with noted as (
  insert into refused_logins as r (client_id, taxpayer, fingerprint, reason, message, refusals,
         since, retry_at)
  values (:client_id, :taxpayer, :fingerprint, :reason, :message, 1, clock_timestamp(),
          clock_timestamp() + least(:first::interval, :longest::interval))
      on conflict (client_id, taxpayer) do update
     set refusals = case when r.fingerprint = excluded.fingerprint then r.refusals + 1 else 1 end,
         since = case when r.fingerprint = excluded.fingerprint then r.since
                      else excluded.since end,
         retry_at = case when r.fingerprint = excluded.fingerprint
                         then clock_timestamp()
                              + least(:first * 2 ^ least(r.refusals, 20), :longest)
                         else excluded.retry_at
                    end,
         fingerprint = excluded.fingerprint,
         reason = excluded.reason,
         message = excluded.message,
         is_trying = false
   where r.fingerprint <> excluded.fingerprint or r.is_trying or r.retry_at <= clock_timestamp()
  returning retry_at
)
select exists (select from noted) as is_new,
       coalesce((select retry_at from noted),
                (select retry_at
                   from refused_logins
                  where client_id = :client_id
                    and taxpayer = :taxpayer)) - clock_timestamp() as wait;

-- name: refused_login_clear :exec
-- Delete the refusals of a taxpayer after a success, and those that were not tried again for a day.
delete from refused_logins
 where (client_id = :client_id and taxpayer = :taxpayer)
    or retry_at < clock_timestamp() - interval '1 day';

-- name: refused_logins_watch :many
-- Return for how many taxpayers the portal refuses the login, and since when, for the watchdog.
select 'attention' as subject, 'CredentialsRefused' as kind, count(*) as n, min(since) as oldest,
       clock_timestamp() as now
  from refused_logins
 where client_id = :client_id
   and fingerprint = :fingerprint
   and retry_at > clock_timestamp() - interval '1 day';

-- name: refused_logins_list :many
-- Return all refused logins, the oldest first, for operators.
select client_id, taxpayer, reason, message, refusals, since, retry_at
  from refused_logins
 where client_id = :client_id
   and fingerprint = :fingerprint
   and retry_at > clock_timestamp() - interval '1 day'
 order by since, taxpayer;

-- name: refused_logins_forget :value
-- Delete the refusals after an operator resolved them with the portal, so that the next request
-- logs in at once. Returns the number of taxpayers.
with forgotten as (
  delete from refused_logins
   where client_id = :client_id and (:taxpayer::text is null or taxpayer = :taxpayer)
  returning taxpayer
)
select count(*) from forgotten;
