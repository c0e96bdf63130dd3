-- Rows of all companies that the judge reads, as a login without row-level security.

-- name: company_automatic :exec
update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}' where id = :company_id;

-- name: records_all :many
-- Return all invoices, adjustment notes and consolidated invoices, also deleted ones.
select 'invoice' as kind, company_id, id, code, type, status, deleted_at is not null as is_deleted,
       line_items -> 0 ->> 'description' as text
  from invoices
union all
select 'note', company_id, id, code, type, status, deleted_at is not null,
       line_items -> 0 ->> 'description'
  from adjustment_notes
union all
select 'consolidated', company_id, id, code, type, status, deleted_at is not null, null
  from consolidated_invoices;

-- name: documents_all :many
-- Return all submitted documents with their records and the states of their submissions.
select d.company_id, d.number, d.document_type, d.issued_at, d.document_hash, d.status, d.uuid,
       d.submission_id,
       case when d.invoice_id is not null then 'invoice'
            when d.adjustment_note_id is not null then 'note'
            else 'consolidated' end as kind,
       coalesce(d.invoice_id, d.adjustment_note_id, d.consolidated_invoice_id) as record_id,
       s.tin, s.state, s.on_absence
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 order by d.id;

-- name: bodies_all :many
-- Return the sent bytes of all submissions that have documents.
select s.company_id, s.id, s.body
  from submissions s
 where exists (select
                 from submitted_documents d
                where d.company_id = s.company_id and d.submission_id = s.id);

-- name: unresolved_all :many
-- Return the unfinished submissions with their progress.
select s.company_id, s.id, s.state, s.claims, s.looks, s.sends, s.absence_confirmations,
       s.not_before - clock_timestamp() as due, s.lease_until - clock_timestamp() as leased,
       s.last_error::text as last_error
  from submissions s
 where s.state in ('Queued', 'Sending', 'Uncertain')
    or exists (select
                 from submitted_documents d
                where d.company_id = s.company_id and d.submission_id = s.id
                  and (d.status = 'Submitted'
                       or d.cancelling_until is not null and d.status = 'Valid'));

-- name: most_claims :value
-- Return the maximum number of claims without a result of a submission.
select coalesce(max(claims), 0) from submissions;

-- name: persons_all :many
-- Return the submissions in manual review.
select company_id, id, claims, sends, last_error::text as last_error
  from submissions
 where state = 'NeedsPerson';
