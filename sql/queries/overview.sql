-- The overview of the dashboard: what needs attention, and the figures of a month.

-- name: overview_failed :many
-- Return the documents whose latest submission the portal did not accept, the latest first, at most
-- :most.
select d.id, d.status, d.number, d.errors, d.updated_at, null as code, d.kind, d.document_id
  from submitted_documents d
  join document_states r on r.company_id = d.company_id and r.id = d.document_id
 where d.company_id = :company_id and r.company_id = :company_id
   and d.status in ('Invalid', 'Rejected')
   and r.deleted_at is null
   and r.status in ('Draft', 'Invalid')
   and r.not_sent is null
   and not exists (
         select from submitted_documents later
          where later.company_id = :company_id
            and later.id > d.id
            and later.document_id = d.document_id)
 order by d.id desc
 limit :most::bigint;

-- name: overview_not_sent :many
-- Return the documents of whose latest submission nothing reached the portal, the latest first, at
-- most :most.
with newest as (
  select id, not_sent
    from document_states
   where company_id = :company_id and not_sent is not null and deleted_at is null
   order by id desc
   limit :most::bigint
)
select document_number(d.type, d.code, c.setting) as number,
       'NotSent' as status,
       (n.not_sent -> 'errors')::text as errors,
       (n.not_sent ->> 'at')::timestamptz as updated_at,
       n.not_sent ->> 'code' as code,
       d.kind,
       d.id as document_id
  from newest n
  join documents d on d.company_id = :company_id and d.id = n.id
  join companies c on c.id = :company_id
 order by updated_at desc;

-- name: overview_unclear :many
-- Return the documents whose outcome is unknown or needs a person, the earliest first, at most
-- :most.
select s.state, d.number, s.last_sent_at, d.kind, d.document_id
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
 where s.company_id = :company_id and s.state in ('Uncertain', 'NeedsPerson')
 order by s.id, d.id
 limit :most::bigint;

-- name: overview_facts :one
-- Return what the other rows of the overview need: documents that can be cancelled for less than
-- :closing more, the expiry of the certificate, keys that expire within :notice, the hold on
-- sending, the company's TIN if it was verified for another company instead, whether there are
-- sales from :overdue_before to :month_start that can be consolidated, the oldest one before that,
-- and the oldest month before :month_start whose consolidated invoice is not submitted.
-- statement_timestamp() can be a condition of an index, which clock_timestamp() cannot.
select (select count(*)
          from submitted_documents d
         where d.company_id = :company_id
           and d.status = 'Valid'
           and d.submitted_at > statement_timestamp() - :window::interval
           and d.submitted_at < statement_timestamp() - :window::interval + :closing::interval)
         as closing,
       (select min(g.not_after)
          from signing_certificates g
         where g.company_id = :company_id and g.removed_at is null) as certificate_ends_at,
       (select count(*)
          from api_keys k
         where k.owner_kind = 'company'
           and k.owner_id = :company_id
           and k.revoked_at is null
           and k.expires_at > statement_timestamp()
           and k.expires_at < statement_timestamp() + :notice::interval) as keys_expiring,
       (select h.reason
          from sending_holds h
         where h.company_id = :company_id and h.released_at is null) as hold,
       (select c.tin_code
          from companies c
         where c.id = :company_id
           and c.tin_verified_at is null
           and companies_of_tin(c.tin) <> '{}'
           and not exists (select from shared_tins s where s.tin = c.tin)) as lost_tin,
       exists (
         select
           from consolidation_candidates i
          where i.company_id = :company_id
            and i.issue_date >= :overdue_before
            and i.issue_date < :month_start
            and i.status in ('Draft', 'Invalid')
            and i.consolidated_invoice_id is null
            and not i.is_named
            and not i.was_accepted) as has_unconsolidated,
       (select i.issue_date
          from consolidation_candidates i
         where i.company_id = :company_id
           and i.issue_date < :overdue_before
           and i.status in ('Draft', 'Invalid')
           and i.consolidated_invoice_id is null
           and not i.is_named
           and not i.was_accepted
         order by i.issue_date
         limit 1) as overdue_since,
       (select min(k.month)
          from documents k
          join document_states s on s.company_id = k.company_id and s.id = k.id
         where k.company_id = :company_id
           and s.company_id = :company_id
           and s.kind = 'consolidated_invoice'
           and s.status in ('Draft', 'Invalid')
           and s.deleted_at is null) as unsent_month,
       clock_timestamp() as now;

-- name: overview_counts :many
-- Return the number of records by list and status.
select list, status, sum(live)::bigint as records
  from record_counts
 where company_id = :company_id
 group by list, status
having sum(live) > 0;

-- name: overview_amounts :many
-- Return the number and the amount of a period's invoices by status and currency.
select s.status, d.currency_code, count(*) as records,
       sum(d.payable_amount + d.prepaid_amount) as amount
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 where d.company_id = :company_id
   and s.company_id = :company_id
   and d.kind = 'invoice'
   and d.deleted_at is null
   and d.issue_date >= :month_start
   and d.issue_date < :month_end
 group by s.status, d.currency_code
 order by s.status, d.currency_code;

-- name: overview_taxes :many
-- Return the taxes of a period's Valid documents by type, rate and currency. Credit and refund
-- notes are subtracted.
select type, rate, currency_code, sum(taxable) as taxable, sum(tax) as tax
  from document_taxes
 where company_id = :company_id
   and status = 'Valid'
   and issue_date >= :month_start
   and issue_date < :month_end
   and type is not null
 group by type, rate, currency_code
 order by type, rate, currency_code;

-- name: overview_days :many
-- Return the number of invoices of each day, and of those that are Valid and Invalid.
select (d.issue_date at time zone :zone)::date as day, count(*) as records,
       count(*) filter (where s.status = 'Valid') as valid,
       count(*) filter (where s.status = 'Invalid') as invalid
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 where d.company_id = :company_id
   and s.company_id = :company_id
   and d.kind = 'invoice'
   and d.deleted_at is null
   and d.issue_date >= :first
   and d.issue_date < :last
 group by 1
 order by 1;
