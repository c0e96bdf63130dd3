-- Manual resolution of submissions that need a person.

-- name: submission_take_over :value
-- Claim a submission that needs a person. Null: it does not, or not any more.
update submissions
   set fence = fence + 1, lease_until = clock_timestamp() + interval '1 minute',
       updated_at = clock_timestamp()
 where company_id = :company_id and id = :id and state = 'NeedsPerson'
returning fence;

-- name: manual_resolution_record :exec
-- Record the manual resolution of a submission in the audit log of each of its documents, and
-- resolve the proposals for them.
with settled as (
  update findings f
     set resolved_at = clock_timestamp(), resolved_by = 'person', note = :note
    from submitted_documents d
   where f.company_id = :company_id and f.resolved_at is null and f.kind = 'adoptable'
     and d.company_id = :company_id and d.submission_id = :submission_id
     and f.submitted_document_id = d.id
)
insert into audit_log (company_id, action, subject, changes)
select :company_id::bigint, 'resolve', document_name(kind, document_id),
       value_changes(null, jsonb_build_object(
         'outcome', :outcome::text, 'uuid', uuid, 'note', :note::text))
  from submitted_documents
 where company_id = :company_id and submission_id = :submission_id;
