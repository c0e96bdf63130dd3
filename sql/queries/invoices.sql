-- Invoices. Every statement takes :company_id, so that rows of other companies are not found.
-- Deleted invoices have no row.

-- name: invoices_insert :many
-- Store drafts from the bodies of requests, a JSON array. The other arrays have one value for each.
-- Return the id, the year and the code of each that was stored. An invoice whose code is used in
-- its year is not stored. Sets its company, so that it can be a transaction of its own.
with tenant as materialized (
  select set_config('app.company_id', :company_id::bigint::text, true) as owner
), stored as (
  insert into invoices (company_id, code, code_year, type, is_ready, issue_date, buyer, supplier,
         line_items, invoice_level_allowance_charge, currency_code, exchange_rate, payment,
         delivery, billing_period, document_references, net_amount, excluding_tax, including_tax,
         payable_amount)
  select :company_id::bigint, code, code_year, type, coalesce(is_ready, false), issue_date, buyer,
         supplier, line_items, invoice_level_allowance_charge, coalesce(currency_code, 'MYR'),
         exchange_rate, payment, delivery, billing_period, document_references, net_amount,
         excluding_tax, including_tax, payable_amount
    from tenant
   cross join rows from (
           json_to_recordset(:bodies::json) as (
             code numeric, type text, "isReady" boolean, buyer json, supplier json,
             "lineItems" json, "invoiceLevelAllowanceCharge" json, "currencyCode" text,
             "exchangeRate" numeric, payment json, delivery json, "billingPeriod" json,
             "references" json),
           unnest(:code_year::smallint[]),
           unnest(:issue_date::timestamptz[]),
           unnest(:net_amount::numeric[]),
           unnest(:excluding_tax::numeric[]),
           unnest(:including_tax::numeric[]),
           unnest(:payable_amount::numeric[])
         ) as request (
           code, type, is_ready, buyer, supplier, line_items, invoice_level_allowance_charge,
           currency_code, exchange_rate, payment, delivery, billing_period, document_references,
           code_year, issue_date, net_amount, excluding_tax, including_tax, payable_amount)
   order by code_year, code  -- Concurrent batches then wait for each other in one order.
      on conflict (company_id, code_year, code) where deleted_at is null do nothing
  returning id, code_year, code
), counted as (
  insert into invoice_counts (company_id, slot, live)
  select :company_id::bigint, pg_backend_pid() % 8, count(*) from stored having count(*) > 0
      on conflict (company_id, slot) do update set live = invoice_counts.live + excluded.live
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'invoice.created', jsonb_build_object('invoice_id', id) from stored
)
select id, code_year, code from stored;

-- name: invoice_get :value
-- Return the record as JSON text, which the service passes through.
select to_json(r) from invoice_records r where company_id = :company_id and id = :id;

-- name: invoice_page :one
-- Return `total` and one page of records, newest first. `data` is a JSON array of records, or null
-- if it would exceed :budget bytes or the page is empty; then `ids` has the ids of the page in
-- order, null if it is empty. Documents are compressed as they are stored, so a page whose stored
-- size exceeds a quarter of :budget is not rendered at all. The offset is skipped in the index from
-- the nearer end. Needs a generic plan: with a known limit PostgreSQL would plan it again for each
-- call.
with counted as materialized (
  select coalesce(sum(live), 0)::bigint as total from invoice_counts where company_id = :company_id
), page as (
  (select id
     from invoices
    where company_id = :company_id
      and deleted_at is null
      and (select 2 * :offset::bigint <= total from counted)
    order by id desc
    limit :per_page::bigint offset :offset::bigint)
  union all
  (select id
     from invoices
    where company_id = :company_id
      and deleted_at is null
      and (select 2 * :offset::bigint > total from counted)
    order by id
    limit (select greatest(0, least(:per_page::bigint, total - :offset::bigint)) from counted)
   offset (select greatest(0, total - :offset::bigint - :per_page::bigint) from counted))
), weighed as (
  select sum(stored.bytes) as bytes
    from page
   cross join lateral (select invoice_size(invoices) as bytes
                         from invoices
                        where company_id = :company_id and id = page.id
                       offset 0) stored
), written as (
  select json_agg(r order by r.id desc)::text as text
    from page
   cross join lateral (select *
                         from invoice_records
                        where company_id = :company_id and id = page.id
                       offset 0) r
   where (select bytes <= :budget::bigint / 4 from weighed)
)
select (select total from counted) as total,
       case when octet_length(text) <= :budget::bigint then text end as data,
       case when octet_length(text) > :budget::bigint or text is null
            then (select array_agg(id order by id desc) from page)
       end as ids
  from written;

-- name: invoice_search :one
-- Same result as invoice_page, with filters and sort order. A null filter does not apply. Needs a
-- custom plan, so that the given filters and the sort order use their indexes.
with found as not materialized (
  select i.id, i.issue_date, i.code
    from invoices i
    join companies c on c.id = i.company_id
   where i.company_id = :company_id and c.id = :company_id and i.deleted_at is null
     and (:status::text is null or i.status = :status)
     and (:type::text is null or i.type = :type)
     and (:issued_from::timestamptz is null or i.issue_date >= :issued_from)
     and (:issued_to::timestamptz is null or i.issue_date <= :issued_to)
     and (:query::text is null
          or i.code::text = :query
          or lower(full_code(
               invoice_prefix(i.type, c.setting),
               (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
               i.code)) = lower(:query)
          or position(lower(:query) in lower(i.buyer ->> 'name')) > 0)
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
   cross join lateral (select invoice_size(invoices) as bytes
                         from invoices
                        where company_id = :company_id and id = page.id
                       offset 0) stored
), written as (
  select json_agg(r order by page.place)::text as text
    from page
   cross join lateral (select *
                         from invoice_records
                        where company_id = :company_id and id = page.id
                       offset 0) r
   where (select bytes <= :budget::bigint / 4 from weighed)
)
select (select count(*) from found) as total,
       case when octet_length(text) <= :budget::bigint then text end as data,
       case when octet_length(text) > :budget::bigint or text is null
            then (select array_agg(id order by place) from page)
       end as ids
  from written;

-- name: invoice_lock :one
-- Lock an invoice for a change and return what the rules need: its fields in the form of a request
-- body, and its full number. Read other rows in a later statement, which sees what the previous
-- holder of the lock committed.
select i.id, i.status, i.type, i.attempts, i.issue_date, i.is_ready, i.consolidated_invoice_id,
       i.payable_amount,
       full_code(
         invoice_prefix(i.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, i.code) as number,
       json_build_object(
         'type', i.type, 'code', i.code, 'issueDateTime', instant(i.issue_date), 'buyer', i.buyer,
         'supplier', i.supplier, 'lineItems', i.line_items, 'isReady', i.is_ready,
         'invoiceLevelAllowanceCharge', i.invoice_level_allowance_charge,
         'currencyCode', i.currency_code, 'exchangeRate', i.exchange_rate, 'payment', i.payment,
         'delivery', i.delivery,
         'billingPeriod', i.billing_period, 'references', i.document_references) as body
  from invoices i
  join companies c on c.id = i.company_id
 where i.company_id = :company_id and c.id = :company_id and i.id = :id and i.deleted_at is null
   for update of i;

-- name: invoice_share :one
-- Lock an invoice FOR SHARE, so that a note cannot be inserted while the invoice is being
-- cancelled.
select id, type, payable_amount + adjusted_by as final_adjusted_amount
  from invoices
 where company_id = :company_id and id = :id and deleted_at is null
   for share;

-- name: invoice_update :exec
-- Write the whole draft from a merged body to a locked row. Can violate invoices_code_once_a_year.
with changed as (
  update invoices i
     set code = request.code,
         code_year = :code_year::smallint,
         type = request.type,
         is_ready = coalesce(request."isReady", false),
         issue_date = :issue_date::timestamptz,
         buyer = request.buyer,
         supplier = request.supplier,
         line_items = request."lineItems",
         invoice_level_allowance_charge = request."invoiceLevelAllowanceCharge",
         currency_code = coalesce(request."currencyCode", 'MYR'),
         exchange_rate = request."exchangeRate",
         payment = request.payment,
         delivery = request.delivery,
         billing_period = request."billingPeriod",
         document_references = request."references",
         net_amount = :net_amount::numeric,
         excluding_tax = :excluding_tax::numeric,
         including_tax = :including_tax::numeric,
         payable_amount = :payable_amount::numeric,
         updated_at = clock_timestamp()
    from json_to_record(:body::json) as request (
           code numeric, type text, "isReady" boolean, buyer json, supplier json,
           "lineItems" json, "invoiceLevelAllowanceCharge" json, "currencyCode" text,
           "exchangeRate" numeric, payment json, delivery json, "billingPeriod" json,
           "references" json)
   where i.company_id = :company_id and i.id = :id
  returning i.id
)
insert into events (company_id, type, data)
select :company_id::bigint, 'invoice.updated', jsonb_build_object('invoice_id', id) from changed;

-- name: invoice_delete :exec
-- Hide a locked invoice and free its code.
with hidden as (
  update invoices
     set deleted_at = clock_timestamp(), updated_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, fingerprint(to_jsonb(invoices)) as left_as
), counted as (
  insert into invoice_counts (company_id, slot, live)
  select :company_id::bigint, pg_backend_pid() % 8, -1 from hidden
      on conflict (company_id, slot) do update set live = invoice_counts.live - 1
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id::bigint, 'delete', format('invoice %s', id), left_as from hidden
)
insert into events (company_id, type, data)
select :company_id::bigint, 'invoice.deleted', jsonb_build_object('invoice_id', id) from hidden;

-- name: invoice_export :one
-- Return the export object as JSON text, and the full code, which names its file.
select export::text as export, export ->> 'invoiceCodeWithPrefixAndDigits' as full_code
  from invoice_exports
 where company_id = :company_id and id = :id;

-- name: invoice_export_batch :one
-- Return the export objects of the next invoices below :before, newest first. `text` is JSON,
-- separated by commas, null if there are none; `last` is the id to continue below. Returns at most
-- :most invoices, and about as many as fit into :budget bytes, at least one. Compressed line items
-- count eight times their stored size.
with weighed as (
  select id, sum(bytes) over (order by id desc) - bytes as bytes_before
    from (select id,
                 invoice_size(invoices)
                 + case when pg_column_compression(line_items) is null then 0
                        else 7 * pg_column_size(line_items) end as bytes
            from invoices
           where company_id = :company_id and deleted_at is null and id < :before
           order by id desc
           limit :most::bigint) next
)
select string_agg(e.export::text, ',' order by e.id desc) as text, min(e.id) as last
  from weighed w
  join invoice_exports e on e.company_id = :company_id and e.id = w.id
 where w.bytes_before <= :budget::bigint;
