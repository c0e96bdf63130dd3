-- Consolidated invoices. Every statement takes :company_id. A deleted one is not there.

-- name: consolidation_terms :one
-- What the rules know besides the invoices: the database's clock, and until when the company is let off.
select clock_timestamp() as now, consolidation_relaxed_until as relaxed_until from companies where id = :company_id;

-- name: consolidation_of_month :many
-- The candidates that were issued in a span of time, by code.
select id, code, number, type, status, issue_date, currency_code, payable_amount, consolidated_invoice_id, is_named,
       was_accepted
  from consolidation_candidates
 where company_id = :company_id and issue_date >= :since and issue_date < :until
 order by code, id;

-- name: consolidation_of_ids :many
-- The candidates of these ids, by code; one that is not there has no row.
select id, code, number, type, status, issue_date, currency_code, payable_amount, consolidated_invoice_id, is_named,
       was_accepted
  from consolidation_candidates
 where company_id = :company_id and id = any (:ids::bigint[])
 order by code, id;

-- name: consolidation_lock :many
-- Locks invoices by id against submission, change and deletion. What they are is for a later statement to look at.
select id
  from invoices
 where company_id = :company_id and id = any (:ids::bigint[])
 order by id
   for update;

-- name: consolidation_lines :many
-- What the lines of invoices are drawn from, as JSON text.
select id, line_items::text as line_items, invoice_level_allowance_charge::text as adjustments
  from invoices
 where company_id = :company_id and id = any (:ids::bigint[]);

-- name: consolidated_invoice_insert :value
-- Stores a draft, puts its locked invoices into it, and returns its id.
-- Breaks consolidated_invoices_code_once_a_year when the code is taken.
with stored as (
  insert into consolidated_invoices (company_id, code, code_year, type, issue_date, month, line_items,
         invoice_level_allowance_charge, invoice_ids, net_amount, excluding_tax, including_tax, payable_amount)
  values (:company_id::bigint, :code::bigint, :code_year::smallint, :type, :issue_date::timestamptz, :month::date,
          :line_items::jsonb, :adjustments::jsonb, :ids::bigint[],
          :net_amount::numeric, :excluding_tax::numeric, :including_tax::numeric, :payable_amount::numeric)
  returning id
), taken as (
  update invoices i
     set consolidated_invoice_id = stored.id, updated_at = clock_timestamp()
    from stored
   where i.company_id = :company_id::bigint and i.id = any (:ids::bigint[])
), counted as (
  insert into list_counts (company_id, list, slot, live)
  values (:company_id::bigint, 'consolidated_invoices', pg_backend_pid() % 8, 1)
      on conflict (company_id, list, slot) do update set live = list_counts.live + 1
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'consolidated_invoice.created', subject_ids(null, null, id) from stored
)
select id from stored;

-- name: consolidated_invoice_get :value
-- The record as JSON text, and the invoices that it was made of.
select to_json(r)
  from (select record.*, k.invoice_ids
          from consolidated_invoice_records record
          join consolidated_invoices k on k.company_id = record.company_id and k.id = record.id
         where record.company_id = :company_id and record.id = :id) r;

-- name: consolidated_invoice_listed :value
-- The record as JSON text, as a list has it.
select to_json(r) from consolidated_invoice_records r where company_id = :company_id and id = :id;

-- name: consolidated_invoice_exists :value
select true from consolidated_invoices where company_id = :company_id and id = :id and deleted_at is null;

-- name: consolidated_invoice_page :one
-- total, and the records, newest first, in `data` or by their `ids`; see invoice_page.
with counted as materialized (
  select coalesce(sum(live), 0)::bigint as total
    from list_counts
   where company_id = :company_id and list = 'consolidated_invoices'
), page as (
  (select id
     from consolidated_invoices
    where company_id = :company_id and deleted_at is null and (select 2 * :offset::bigint <= total from counted)
    order by id desc
    limit :per_page::bigint offset :offset::bigint)
  union all
  (select id
     from consolidated_invoices
    where company_id = :company_id and deleted_at is null and (select 2 * :offset::bigint > total from counted)
    order by id
    limit (select greatest(0, least(:per_page::bigint, total - :offset::bigint)) from counted)
   offset (select greatest(0, total - :offset::bigint - :per_page::bigint) from counted))
), weighed as (
  select sum(stored.bytes) as bytes
    from page
   cross join lateral (select consolidated_invoice_size(consolidated_invoices) as bytes
                         from consolidated_invoices
                        where company_id = :company_id and id = page.id
                       offset 0) stored
), written as (
  select json_agg(r order by r.id desc)::text as text
    from page
   cross join lateral (select *
                         from consolidated_invoice_records
                        where company_id = :company_id and id = page.id
                       offset 0) r
   where (select bytes <= :budget::bigint / 4 from weighed)
)
select (select total from counted) as total,
       case when octet_length(text) <= :budget::bigint then text end as data,
       case when octet_length(text) > :budget::bigint or text is null then (select array_agg(id order by id desc) from page) end as ids
  from written;

-- name: consolidated_invoice_search :one
-- As consolidated_invoice_page, for what is filtered or sorted otherwise; see invoice_search. There is no buyer's name.
with found as not materialized (
  select k.id, k.issue_date, k.code
    from consolidated_invoices k
    join companies c on c.id = k.company_id
   where k.company_id = :company_id and c.id = :company_id and k.deleted_at is null
     and (:status::text is null or k.status = :status)
     and (:type::text is null or k.type = :type)
     and (:issued_from::timestamptz is null or k.issue_date >= :issued_from)
     and (:issued_to::timestamptz is null or k.issue_date <= :issued_to)
     and (:query::text is null
          or k.code::text = :query
          or lower(full_code(consolidated_prefix(k.type, c.setting), (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, k.code))
             = lower(:query))
), page as (
  select row_number() over () as place, id
    from (select id
            from found
           order by case when :sort = 'id' then id end,
                    case when :sort = '-id' then id end desc,
                    case when :sort = 'issue_date' then issue_date end,
                    case when :sort = '-issue_date' then issue_date end desc,
                    case when :sort = 'code' then code end,
                    case when :sort = '-code' then code end desc,
                    case when :sort in ('issue_date', 'code') then id end,
                    case when :sort in ('-issue_date', '-code') then id end desc
           limit :per_page::bigint offset :offset::bigint) ordered
), weighed as (
  select sum(stored.bytes) as bytes
    from page
   cross join lateral (select consolidated_invoice_size(consolidated_invoices) as bytes
                         from consolidated_invoices
                        where company_id = :company_id and id = page.id
                       offset 0) stored
), written as (
  select json_agg(r order by page.place)::text as text
    from page
   cross join lateral (select *
                         from consolidated_invoice_records
                        where company_id = :company_id and id = page.id
                       offset 0) r
   where (select bytes <= :budget::bigint / 4 from weighed)
)
select (select count(*) from found) as total,
       case when octet_length(text) <= :budget::bigint then text end as data,
       case when octet_length(text) > :budget::bigint or text is null then (select array_agg(id order by place) from page) end as ids
  from written;

-- name: consolidated_invoice_lock :one
-- Locks a consolidated invoice for a change; the body is that of its document. Its buyer is the general public, or
-- where it is self-billed its supplier. The period is the month of its sales.
select k.id, k.status, k.type, k.attempts, k.issue_date, k.month, k.payable_amount, clock_timestamp() as now,
       full_code(consolidated_prefix(k.type, c.setting), (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, k.code) as number,
       json_build_object(
         'type', k.type, 'code', k.code, 'issueDateTime', instant(k.issue_date), 'lineItems', k.line_items,
         'invoiceLevelAllowanceCharge', k.invoice_level_allowance_charge,
         'billingPeriod', json_build_object(
           'start', k.month, 'end', (k.month + interval '1 month' - interval '1 day')::date, 'frequency', 'Monthly'),
         case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE' then 'supplier' else 'buyer' end,
         json_build_object('type', 'GENERAL_PUBLIC')) as body
  from consolidated_invoices k
  join companies c on c.id = k.company_id
 where k.company_id = :company_id and c.id = :company_id and k.id = :id and k.deleted_at is null
   for update of k;

-- name: consolidated_invoice_share :one
-- Locks a consolidated invoice against a change, for a note against it; as invoice_share.
select id, type, payable_amount + adjusted_by as final_adjusted_amount
  from consolidated_invoices
 where company_id = :company_id and id = :id and deleted_at is null
   for share;

-- name: consolidated_invoice_members_lock :many
-- Locks the invoices that are in a locked consolidated invoice, by id: the order in which consolidations lock them.
select id
  from invoices
 where company_id = :company_id and consolidated_invoice_id = :id
 order by id
   for update;

-- name: consolidated_invoice_delete :exec
-- Hides a locked consolidated invoice, frees its code and its invoices.
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
), counted as (
  insert into list_counts (company_id, list, slot, live)
  select :company_id::bigint, 'consolidated_invoices', pg_backend_pid() % 8, -1 from hidden
      on conflict (company_id, list, slot) do update set live = list_counts.live - 1
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

-- name: consolidated_invoice_export_batch :one
-- As invoice_export_batch.
with weighed as (
  select id, sum(bytes) over (order by id desc) - bytes as bytes_before
    from (select id,
                 consolidated_invoice_size(consolidated_invoices)
                 + case when pg_column_compression(line_items) is null then 0
                        else 7 * pg_column_size(line_items) end as bytes
            from consolidated_invoices
           where company_id = :company_id and deleted_at is null and id < :before
           order by id desc
           limit :most::bigint) next
)
select string_agg(e.export::text, ',' order by e.id desc) as text, min(e.id) as last
  from weighed w
  join consolidated_invoice_exports e on e.company_id = :company_id and e.id = w.id
 where w.bytes_before <= :budget::bigint;
