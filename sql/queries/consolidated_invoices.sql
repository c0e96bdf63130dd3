-- Consolidated invoices. Every statement takes :company_id. Deleted ones have no row.

-- name: consolidation_terms :one
-- Return the facts that the consolidation rules need besides the invoices: the database clock, and
-- until when exclusions are suspended for the company, and its industry.
select clock_timestamp() as now, consolidation_relaxed_until as relaxed_until,
       coalesce(msic_code, '') as msic
  from companies
 where id = :company_id;

-- name: consolidation_of_month :many
-- Return the candidates that were issued in a time span, ordered by code. Those of :omitted_types
-- that were submitted individually have no row.
select id, code, number, type, status, issue_date, currency_code, total_amount,
       consolidated_invoice_id, is_named, was_accepted
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
   and not (type = any (:omitted_types::text[]) and was_submitted)
 order by code, id;

-- name: consolidation_submitted_count :value
-- Return how many candidates of a time span and of :types were submitted individually.
select count(*)
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
   and type = any (:types::text[]) and was_submitted;

-- name: consolidation_classes :many
-- Return the candidates of consolidation_of_month, grouped by all facts that the rules read: each
-- row has the facts of its invoices, their number, and the sums of their amounts. Amounts above
-- :amount and numbers longer than :digits are apart.
select type, status, currency_code, consolidated_invoice_id, is_named, was_accepted,
       max(issue_date) as issue_date, max(number) as number, max(total_amount) as total_amount,
       count(*) as n, sum(excluding_tax) as excluding_tax, sum(total_amount) as payable
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
   and not (type = any (:omitted_types::text[]) and was_submitted)
 group by type, status, currency_code, consolidated_invoice_id, is_named, was_accepted,
       (issue_date at time zone :zone)::date, total_amount > :amount, length(number) > :digits;

-- name: consolidation_of_ids :many
-- Return the candidates with these ids, ordered by code. Missing invoices have no row.
select id, code, number, type, status, issue_date, currency_code, total_amount,
       consolidated_invoice_id, is_named, was_accepted
  from consolidation_candidates
 where company_id = :company_id and id = any (:ids::bigint[])
 order by code, id;

-- name: consolidation_lock :many
-- Lock invoices by id against submission, change and deletion. Read their columns in a later
-- statement.
select id
  from invoices
 where company_id = :company_id and id = any (:ids::bigint[])
 order by id
   for update;

-- name: consolidation_lines :many
-- Return the parts of invoices that the lines are computed from, as JSON text.
select id, line_items::text as line_items, invoice_level_allowance_charge::text as adjustments,
       prepaid_amount, payable_rounding_amount
  from invoices
 where company_id = :company_id and id = any (:ids::bigint[]);

-- name: consolidated_invoice_insert :value
-- Store a draft, assign its locked invoices to it, and return its id. Can violate
-- consolidated_invoices_code_once_a_year.
with stored as (
  insert into consolidated_invoices (company_id, code, code_year, type, issue_date, month,
         line_items, invoice_level_allowance_charge, prepayment, payable_rounding_amount,
         invoice_ids, net_amount, excluding_tax, including_tax, payable_amount, prepaid_amount,
         taxes)
  values (:company_id::bigint, :code::bigint, :code_year::smallint, :type, :issue_date::timestamptz,
          :month::date, :line_items::json, :adjustments::json, :prepayment::json,
          :payable_rounding_amount::numeric, :ids::bigint[], :net_amount::numeric,
          :excluding_tax::numeric, :including_tax::numeric, :payable_amount::numeric,
          :prepaid_amount::numeric, :taxes::jsonb)
  returning id
), taken as (
  update invoices i
     set consolidated_invoice_id = stored.id, updated_at = clock_timestamp()
    from stored
   where i.company_id = :company_id::bigint and i.id = any (:ids::bigint[])
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'consolidated_invoice.created', subject_ids(null, null, id)
    from stored
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'create', format('consolidated invoice %s', id) from stored
)
select id from stored;

-- name: consolidated_invoice_get :value
-- Return the record as JSON text with the invoices that it was made of.
select to_json(r)
  from (select record.*, k.invoice_ids
          from consolidated_invoice_records record
          join consolidated_invoices k on k.company_id = record.company_id and k.id = record.id
         where record.company_id = :company_id and record.id = :id) r;

-- name: consolidated_invoice_listed :value
-- Return the record as JSON text in the form of the list.
select to_json(r) from consolidated_invoice_records r where company_id = :company_id and id = :id;

-- name: consolidated_invoice_page :many
-- Return a page of records, newest first; see invoice_page.
with page as materialized (
  select id, bytes
    from consolidated_invoices
   where company_id = :company_id and deleted_at is null
   order by id desc
   limit :per_page::bigint offset :offset::bigint
)
select counted.total, page.id,
       case when (select sum(bytes) from page) <= :budget::bigint
            then (select to_json(r)
                    from consolidated_invoice_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from (select coalesce(sum(live), 0)::bigint as total
          from record_counts
         where company_id = :company_id and list = 'consolidated_invoices') counted
  left join page on true
 order by page.id desc;

-- name: consolidated_invoice_search :many
-- Return a page as consolidated_invoice_page does, with filters and a sort order.
select total, is_exact, id, record
  from consolidated_invoice_search(
       :company_id, :filters::jsonb, :sort, :per_page, :offset, :budget);

-- name: consolidated_invoice_lock :one
-- Lock a consolidated invoice for a change. `body` is its document: the buyer, or for a self-billed
-- one the supplier, is the general public, and the billing period is the month of its sales.
select k.id, k.status, k.type, k.attempts, k.issue_date, k.month,
       clock_timestamp() as now,
       full_code(
         consolidated_prefix(k.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
         k.code) as number,
       json_build_object(
         'type', k.type, 'code', k.code, 'issueDateTime', instant(k.issue_date),
         'lineItems', k.line_items, 'invoiceLevelAllowanceCharge', k.invoice_level_allowance_charge,
         'prepayment', k.prepayment, 'payableRoundingAmount', k.payable_rounding_amount,
         'billingPeriod', json_build_object(
           'start', k.month, 'end', (k.month + interval '1 month' - interval '1 day')::date,
           'frequency', 'Monthly'),
         case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE' then 'supplier' else 'buyer' end,
         json_build_object('type', 'GENERAL_PUBLIC')) as body
  from consolidated_invoices k
  join companies c on c.id = k.company_id
 where k.company_id = :company_id and c.id = :company_id and k.id = :id and k.deleted_at is null
   for update of k;

-- name: consolidated_invoice_share :one
-- Lock a consolidated invoice FOR SHARE, so that a note cannot be inserted while it is being
-- cancelled.
select id, type, payable_amount + prepaid_amount + adjusted_by as final_adjusted_amount
  from consolidated_invoices
 where company_id = :company_id and id = :id and deleted_at is null
   for share;

-- name: consolidated_invoice_members_lock :many
-- Lock the invoices of a locked consolidated invoice by id, in the same order as consolidations do.
select id
  from invoices
 where company_id = :company_id and consolidated_invoice_id = :id
 order by id
   for update;

-- name: consolidated_invoice_delete :exec
-- Hide a locked consolidated invoice, free its code and release its invoices.
with hidden as (
  update consolidated_invoices
     set deleted_at = clock_timestamp(), updated_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, fingerprint(to_jsonb(consolidated_invoices)) as left_as
), freed as (
  update invoices i
     set consolidated_invoice_id = null, updated_at = clock_timestamp()
    from hidden
   where i.company_id = :company_id and i.consolidated_invoice_id = hidden.id
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id::bigint, 'delete', format('consolidated invoice %s', id), left_as from hidden
)
insert into events (company_id, type, data)
select :company_id::bigint, 'consolidated_invoice.deleted', subject_ids(null, null, id) from hidden;

-- name: consolidated_invoice_export :one
select export::text as export, export ->> 'invoiceCodeWithPrefixAndDigits' as full_code
  from consolidated_invoice_exports
 where company_id = :company_id and id = :id;

-- name: consolidated_invoice_export_batch :many
-- Return the next export objects below :before; see invoice_export_batch.
with next as (
  select id, bytes
    from consolidated_invoices
   where company_id = :company_id and deleted_at is null and id < :before
   order by id desc
   limit :most::bigint
), fitting as (
  select id, sum(bytes) over (order by id desc) - bytes as bytes_before from next
)
select e.id, e.export::text as export
  from fitting f
  join consolidated_invoice_exports e on e.company_id = :company_id and e.id = f.id
 where f.bytes_before <= :budget::bigint
 order by e.id desc;
