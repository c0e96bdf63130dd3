-- Rows of all companies that the judge reads, as a login without row-level security.

-- name: records_all :many
-- Return all invoices, adjustment notes, consolidated invoices and e-invoice requests, also deleted
-- ones.
select case kind when 'adjustment_note' then 'note'
                 when 'consolidated_invoice' then 'consolidated'
                 else 'invoice' end as kind,
       company_id, id, code::text as code, d.type, s.status, d.deleted_at is not null as is_deleted,
       case when kind <> 'consolidated_invoice'
            then line_items -> 0 ->> 'description' end as text
  from documents d
  join document_states s using (company_id, id, kind)
union all
select 'request', company_id, id, invoice_code, '', status, deleted_at is not null, null
  from einvoice_requests;

-- name: documents_all :many
-- Return all submitted documents with their records and the states of their submissions.
select d.company_id, d.id, d.number, d.document_type, d.issued_at, d.document_hash, d.status, d.uuid,
       d.submission_id,
       case d.kind when 'adjustment_note' then 'note'
                   when 'consolidated_invoice' then 'consolidated'
                   else 'invoice' end as kind,
       d.document_id as record_id,
       s.tin, s.state, s.on_absence, c.content
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
  join submitted_contents c on c.company_id = d.company_id and c.submitted_document_id = d.id
 order by d.id;

-- name: unresolved_all :many
-- Return the unfinished submissions with their progress.
select s.company_id, s.id, s.state, s.claims, s.reads, s.sends, s.absence_confirmations,
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

-- name: deliveries_left :value
-- Return the number of deliveries that are pending, and of endpoints with events that no delivery
-- was created for yet.
select (select count(*) from webhook_deliveries where status = 'Pending')
     + (select count(*)
          from webhook_endpoints e
         where e.enabled
           and exists (select
                         from events v
                        where v.company_id = e.company_id
                          and (v.transaction_id, v.id) > (e.cursor_transaction, e.cursor_event)));

-- name: counters_all :many
-- Return the maintained and the counted number of records of each company, list, status and type.
select company_id, list, status, type, sum(live)::bigint as maintained,
       sum(counted)::bigint as counted
  from (select company_id, list, status, type, live, 0 as counted
          from record_counts
        union all
        select company_id, kind, s.status, d.type, 0, 1
          from documents d
          join document_states s using (company_id, id, kind)
         where d.deleted_at is null
        union all
        select company_id, 'einvoice_request', status, '', 0, 1
          from einvoice_requests
         where deleted_at is null
        union all
        select d.company_id, 'submitted_document', d.status, '', 0, 1
          from submitted_documents d
          join documents r on r.company_id = d.company_id and r.id = d.document_id
         where r.deleted_at is null) each
 group by company_id, list, status, type
having sum(live) <> 0 or sum(counted) <> 0;

-- name: adjustments_all :many
-- Return the invoices and consolidated invoices that notes adjust or have adjusted: the amount
-- before notes, its maintained adjustment, the amount that the API returns (null if deleted), and
-- the sum of the Valid notes.
with target as (
  select case d.kind when 'invoice' then 'invoice' else 'consolidated' end as kind, d.company_id,
         d.id, d.payable_amount + d.prepaid_amount as amount, s.adjusted_by,
         coalesce(i.final_adjusted_amount, k.final_adjusted_amount) as returned
    from documents d
    join document_states s on s.company_id = d.company_id and s.id = d.id
    left join invoice_records i on i.company_id = d.company_id and i.id = d.id
    left join consolidated_invoice_records k on k.company_id = d.company_id and k.id = d.id
   where d.kind <> 'adjustment_note'
), note as (
  select n.company_id, coalesce(n.invoice_id, n.consolidated_invoice_id) as id,
         case when n.invoice_id is null then 'consolidated' else 'invoice' end as kind,
         coalesce(
           sum(case when n.type = 'DEBIT_NOTE' then 1 else -1 end
               * (n.payable_amount + n.prepaid_amount))
             filter (where s.status = 'Valid'),
           0) as sum_of_valid,
         bool_or(s.status in ('Valid', 'Cancelled')) as has_adjusted
    from documents n
    join document_states s on s.company_id = n.company_id and s.id = n.id
   where n.kind = 'adjustment_note'
   group by n.company_id, n.invoice_id, n.consolidated_invoice_id
)
select t.kind, t.company_id, t.id, t.amount, t.adjusted_by, t.returned,
       coalesce(n.sum_of_valid, 0) as sum_of_valid
  from target t
  left join note n on n.company_id = t.company_id and n.kind = t.kind and n.id = t.id
 where n.has_adjusted or t.adjusted_by <> 0;

-- name: outcomes_all :many
-- Return the status of the latest submitted document of each document, and of the last submission
-- that its record shows.
select s.company_id, s.id, d.status, last_submission(s) ->> 'status' as shown
  from document_states s
 cross join lateral (
         select status
           from submitted_documents
          where company_id = s.company_id and document_id = s.id
          order by id desc
          limit 1) d;

-- name: events_all :many
-- Return all events in the order of the feed.
select company_id, id, type, data::text as data
  from events
 order by company_id, transaction_id, id;

-- name: attempts_all :many
-- Return how often each event was sent to each endpoint.
select company_id, endpoint_id, event_id, attempts, status from webhook_deliveries;

-- name: audit_all :many
select company_id, actor, action, subject from audit_log order by company_id, id;
