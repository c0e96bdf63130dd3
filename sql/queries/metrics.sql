-- Gauges of the whole installation, for /metrics.

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
