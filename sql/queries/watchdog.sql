-- Queries of the watchdog, which has its own connection.

-- name: watch :many
-- Return how much there is of each kind, since when the oldest is due or open, and the clock.
select subject, kind, n, oldest, clock_timestamp() as now
  from watch(:grace::interval, :settle::interval, :proof_gap::interval, :every::interval)
union all
select subject, kind, n, oldest, clock_timestamp()
  from unsettled_cancellations(:grace, :settle);

-- name: clock_note :value
-- Note the time. Return the length of a step backward that was noticed, with due times moved.
select note_clock();

-- name: conditions_watch :many
-- Return conditions of all companies that last longer than :age.
select subject, kind, n, oldest, clock_timestamp() as now from conditions(:age::interval);
