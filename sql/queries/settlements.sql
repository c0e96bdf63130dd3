-- What a person settles of a submission that no machine could.

-- name: submission_take_over :value
-- Takes a submission that needs a person; the fence. No row: it does not, or no longer.
update submissions
   set fence = fence + 1, updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'NeedsPerson'
returning fence;

-- name: settlement_insert :value
insert into settlements (company_id, submission_id, outcome, uuids, note)
values (:company_id, :submission_id, :outcome, :uuids, :note)
returning id;
