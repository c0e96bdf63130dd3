-- Manual resolution of submissions that need a person.

-- name: submission_take_over :one
-- Claim a submission that needs a person. No row: it does not, or not any more.
update submissions
   set fence = fence + 1, lease_until = clock_timestamp() + interval '1 minute',
       updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'NeedsPerson'
returning fence, clock_timestamp() as now;

-- name: manual_resolution_insert :value
insert into manual_resolutions (company_id, submission_id, outcome, uuids, note)
values (:company_id, :submission_id, :outcome, :uuids, :note)
returning id;
