-- Queries of the watchdog, which has its own connection.

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
