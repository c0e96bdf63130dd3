-- The overview of the dashboard: what needs attention, and the figures of a month.

-- name: overview_failed :many
-- Return the documents whose latest submission failed, the latest first, at most :most. `code` is
-- that of a failure before the portal.
with failed as (
  select id, failed_outcome as outcome, outcome_at
    from document_states
   where company_id = :company_id and failed_outcome is not null and deleted_at is null
     and status in ('Draft', 'Invalid')
   order by outcome_at desc
   limit :most::bigint
)
select d.kind, d.id as document_id, f.outcome ->> 'status' as status, f.outcome_at as updated_at,
       case when f.outcome -> 'errors' is null then sent.number
            else document_number(d.type, d.code, c.setting) end as number,
       coalesce(f.outcome -> 'errors', sent.errors::json)::text as errors,
       case when f.outcome -> 'errors' is not null then f.outcome ->> 'code' end as code
  from failed f
  join documents d on d.company_id = :company_id and d.id = f.id
  join companies c on c.id = :company_id
  left join lateral (
         select number, errors
           from submitted_documents
          where company_id = :company_id and document_id = d.id
          order by id desc
          limit 1) sent on true
 order by f.outcome_at desc;

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
with open_sale as not materialized (
  select issue_date
    from consolidation_candidates
   where company_id = :company_id
     and issue_date < :month_start
     and status in ('Draft', 'Invalid')
     and consolidated_invoice_id is null
     and not is_named
     and not was_accepted
)
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
       exists (select from open_sale where issue_date >= :overdue_before) as has_unconsolidated,
       (select issue_date
          from open_sale
         where issue_date < :overdue_before
         order by issue_date
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
-- Return the number of invoices of each day from :first to before :last, also of days without any,
-- and of those that are Valid and Invalid.
with counted as (
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
)
select days.day::date as day, coalesce(records, 0) as records, coalesce(valid, 0) as valid,
       coalesce(invalid, 0) as invalid
  from generate_series(:first::timestamptz at time zone :zone,
                       (:last::timestamptz at time zone :zone) - interval '1 day',
                       interval '1 day') as days (day)
  left join counted on counted.day = days.day
 order by 1;
