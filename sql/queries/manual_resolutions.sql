-- Manual resolution of submissions that need a person.

-- name: submission_take_over :one
-- Claim a submission that needs a person. No row: it does not, or not any more.
update submissions
   set fence = fence + 1, lease_until = clock_timestamp() + interval '1 minute',
       updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'NeedsPerson'
returning fence, clock_timestamp() as now;

-- name: manual_resolution_insert :exec
-- Store a manual resolution, and resolve the proposals for the documents of its submission.
with settled as (
  update findings f
     set resolved_at = clock_timestamp(), resolved_by = 'person', note = :note
   where f.company_id = :company_id
     and f.resolved_at is null
     and f.kind = 'adoptable'
     and f.submitted_document_id in (select d.id
                                       from submitted_documents d
                                      where d.company_id = :company_id
                                        and d.submission_id = :submission_id)
)
insert into manual_resolutions (company_id, submission_id, outcome, uuids, note)
values (:company_id, :submission_id, :outcome, :uuids, :note);
