-- What the watchdog asks, through a connection of its own.

-- name: watch :many
-- How much there is of each kind, since when the oldest is due or open, and the clock.
select subject, kind, n, oldest, clock_timestamp() as now
  from watch(:grace::interval, :settle::interval, :proof_gap::interval, :every::interval)
union all
select subject, kind, n, oldest, clock_timestamp()
  from unsettled_cancellations(:grace, :settle);

-- name: conditions_watch :many
-- Conditions that last longer than :age, of all companies.
select subject, kind, n, oldest, clock_timestamp() as now from conditions(:age::interval);
