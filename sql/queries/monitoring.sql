-- What the watchdog, which has its own connection, and /metrics read of all companies.

-- name: conditions_watched :many
-- Return how much there is of each kind in all companies, and since when the oldest is due or open.
-- Refused logins are those of the operator's client, and companies whose own client is refused.
select subject, kind, n, since
  from conditions(
         :age::interval, :grace::interval, :settle::interval, :confirmation_gap::interval,
         :every::interval)
 union all
select 'attention', 'CredentialsRefused', count(*), min(since)
  from refused_logins
 where client_id = :client_id
   and fingerprint = :fingerprint
   and retry_at > clock_timestamp() - interval '1 day'
 union all
select 'attention', 'CompanyCredentialsRefused', count(*), min(r.since)
  from own_portal_clients() o
  join refused_logins r on r.client_id = o.client_id and r.fingerprint = o.fingerprint
 where r.taxpayer = '' and r.retry_at > clock_timestamp() - interval '1 day';

-- name: portal_quota_use :many
-- Return for each operation of a client how many requests its bucket has had within the span, and
-- how long the portal has asked it to wait. It reads one row for each operation.
select q.operation,
       (select count(*)
          from unnest(b.taken) t (at)
         where t.at > clock_timestamp() - q.span) as used,
       greatest(b.paused_until - clock_timestamp(), interval '0') as pause
  from unnest(:operations::text[], :spans::interval[]) as q (operation, span)
  left join portal_buckets b
         on b.client_id = :client_id and b.operation = q.operation and b.taxpayer = '';
