-- Logins that the portal refused, by credentials and taxpayer. They belong to no company, because
-- companies share the operator's client. A refusal without a taxpayer is that of the client, and
-- counts for each.

-- name: refused_login_try :one
-- Claim the next try after a refusal for :lease, for one process. `is_mine`: the caller may try.
-- Otherwise `wait` is the time until another process may.
with known as (
  select taxpayer, retry_at
    from refused_logins
   where client_id = :client_id and taxpayer in ('', :taxpayer) and fingerprint = :fingerprint
   order by taxpayer
     for update
), mine as (
  update refused_logins r
     set retry_at = clock_timestamp() + :lease::interval, is_trying = true
    from known k
   where r.client_id = :client_id
     and r.taxpayer = k.taxpayer
     and r.fingerprint = :fingerprint
     and not exists (select from known o where o.retry_at > clock_timestamp())
  returning r.taxpayer, r.reason
)
select exists (select from mine) or not exists (select from known) as is_mine,
       (select reason from mine order by taxpayer desc limit 1) as reason,
       (select greatest(max(retry_at) - clock_timestamp(), interval '1 second') from known) as wait;

-- name: refused_login_note :one
-- Record a refusal and return the pause. `wait` is the time until the next try; `is_new` is false
-- if another process recorded a refusal during the pause. The pause is :first at first and doubles
-- with each refusal, up to :longest.
with noted as (
  insert into refused_logins as r (client_id, taxpayer, fingerprint, reason, message, refusals,
         since, retry_at)
  values (:client_id, :taxpayer, :fingerprint, :reason, :message, 1, clock_timestamp(),
          clock_timestamp() + least(:first::interval, :longest::interval))
      on conflict (client_id, taxpayer, fingerprint) do update
     set refusals = r.refusals + 1,
         retry_at = clock_timestamp() + least(:first * 2 ^ least(r.refusals, 20), :longest),
         reason = excluded.reason,
         message = excluded.message,
         is_trying = false
   where r.is_trying or r.retry_at <= clock_timestamp()
  returning retry_at
)
select exists (select from noted) as is_new,
       coalesce((select retry_at from noted),
                (select retry_at
                   from refused_logins
                  where client_id = :client_id
                    and taxpayer = :taxpayer
                    and fingerprint = :fingerprint)) - clock_timestamp() as wait;

-- name: refused_login_clear :exec
-- Delete the refusals of a taxpayer and of the client after a success, and those that were not
-- tried again for a day.
delete from refused_logins
 where (client_id = :client_id and taxpayer in ('', :taxpayer) and fingerprint = :fingerprint)
    or retry_at < clock_timestamp() - interval '1 day';

-- name: refused_logins_list :many
-- Return all refused logins, the oldest first, for operators. `company_id` is null for those of the
-- operator's client.
select null::bigint as company_id, client_id, taxpayer, reason, message, refusals, since, retry_at
  from refused_logins
 where client_id = :client_id
   and fingerprint = :fingerprint
   and retry_at > clock_timestamp() - interval '1 day'
 union all
select o.company_id, r.client_id, o.tin, r.reason, r.message, r.refusals, r.since, r.retry_at
  from own_portal_clients() o
  join refused_logins r on r.client_id = o.client_id and r.fingerprint = o.fingerprint
 where r.taxpayer = '' and r.retry_at > clock_timestamp() - interval '1 day'
 order by since, taxpayer;

-- name: refused_logins_forget :value
-- Delete the refusals after an operator resolved them with the portal, so that the next request
-- logs in at once. Returns their number. Those of a taxpayer's own client have its TIN.
with forgotten as (
  delete from refused_logins r
   where :taxpayer::text is null
      or r.client_id = :client_id and r.taxpayer in ('', :taxpayer)
      or exists (
           select
             from own_portal_clients() o
            where o.tin = :taxpayer
              and o.client_id = r.client_id
              and o.fingerprint = r.fingerprint)
  returning taxpayer
)
select count(*) from forgotten;
