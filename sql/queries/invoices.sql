-- Invoices. Every statement takes :company_id, so that rows of other companies are not found.
-- Deleted invoices have no row.

-- name: invoice_insert :one
-- Store a draft, and return its id and the tax registrations of the company. :body is the request
-- body, :columns are the computed columns.
-- Sets its company and its actor, so that it can be a transaction of its own. Can violate
-- invoices_code_once_a_year and invoices_reference_once.
with tenant as materialized (
  select set_config('app.company_id', :company_id::bigint::text, true),
         set_config('app.actor', :actor, true),
         set_config('app.request_id', :request_id, true),
         set_config('app.client_address', :client_address, true)
), stored as (
  insert into invoices (company_id, code, code_year, type, is_ready, issue_date, buyer, supplier,
         line_items, invoice_level_allowance_charge, currency_code, exchange_rate, payment,
         delivery, billing_period, document_references, reference, metadata,
         prepayment, payable_rounding_amount,
         net_amount, excluding_tax, including_tax, payable_amount, prepaid_amount, taxes)
  select :company_id::bigint, code, code_year, type, coalesce("isReady", false), issue_date, buyer,
         supplier, "lineItems", "invoiceLevelAllowanceCharge", coalesce("currencyCode", 'MYR'),
         "exchangeRate", payment, delivery, "billingPeriod", "references", reference, metadata,
         prepayment, "payableRoundingAmount", net_amount, excluding_tax, including_tax,
         payable_amount, prepaid_amount, taxes
    from tenant
   cross join json_to_record(:body::json) as request (
           code numeric, type text, "isReady" boolean, buyer json, supplier json,
           "lineItems" json, "invoiceLevelAllowanceCharge" json, "currencyCode" text,
           "exchangeRate" numeric, payment json, delivery json, "billingPeriod" json,
           "references" json, reference text, metadata json,
           prepayment json, "payableRoundingAmount" numeric)
   cross join json_to_record(:columns::json) as computed (
           code_year smallint, issue_date timestamptz, net_amount numeric, excluding_tax numeric,
           including_tax numeric, payable_amount numeric, prepaid_amount numeric, taxes jsonb)
  returning id
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'invoice.created', jsonb_build_object('invoice_id', id) from stored
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'create', format('invoice %s', id) from stored
)
select id,
       (select sst_registration_number from companies where id = :company_id)
         as sst_registration_number,
       (select tourism_tax_registration_number from companies where id = :company_id)
         as tourism_tax_registration_number
  from stored;

-- name: invoice_get :value
-- Return the record as JSON text, which the service passes through.
select to_json(r) from invoice_records r where company_id = :company_id and id = :id;

-- name: invoice_page :many
-- Return a page of records, newest first: rows with the `total` of the list, `id` and `record`, a
-- JSON object. The records are null if their documents exceed :budget bytes together. An empty
-- page is a row with the total alone.
with page as materialized (
  select id, bytes + coalesce(octet_length(metadata::text), 0) as bytes
    from invoices
   where company_id = :company_id and deleted_at is null
   order by id desc
   limit :per_page::bigint offset :offset::bigint
)
select counted.total, page.id,
       case when (select sum(bytes) from page) <= :budget::bigint
            then (select to_json(r)
                    from invoice_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from (select coalesce(sum(live), 0)::bigint as total
          from record_counts
         where company_id = :company_id and list = 'invoices') counted
  left join page on true
 order by page.id desc;

-- name: invoice_search :many
-- Return a page as invoice_page does, with filters and a sort order. A null filter does not apply.
-- With the filter count_to, the total is counted up to about this number, and is_exact is false if
-- there are more.
select total, is_exact, id, record
  from invoice_search(
       :company_id, :filters::jsonb, :sort, :per_page, :offset, :budget);

-- name: invoice_lock :one
-- Lock an invoice for a change and return what the rules need: its fields in the form of a request
-- body, and its full number. Read other rows in a later statement, which sees what the previous
-- holder of the lock committed.
select i.id, i.status, i.type, i.attempts, i.is_changed, i.issue_date, i.is_ready,
       i.consolidated_invoice_id,
       full_code(
         invoice_prefix(i.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, i.code) as number,
       c.sst_registration_number, c.tourism_tax_registration_number,
       json_build_object(
         'type', i.type, 'code', i.code, 'issueDateTime', instant(i.issue_date), 'buyer', i.buyer,
         'supplier', i.supplier, 'lineItems', i.line_items, 'isReady', i.is_ready,
         'invoiceLevelAllowanceCharge', i.invoice_level_allowance_charge,
         'currencyCode', i.currency_code, 'exchangeRate', i.exchange_rate, 'payment', i.payment,
         'delivery', i.delivery,
         'billingPeriod', i.billing_period, 'references', i.document_references,
         'reference', i.reference, 'metadata', i.metadata,
         'prepayment', i.prepayment, 'payableRoundingAmount', i.payable_rounding_amount) as body
  from invoices i
  join companies c on c.id = i.company_id
 where i.company_id = :company_id and c.id = :company_id and i.id = :id and i.deleted_at is null
   for update of i;

-- name: invoice_share :one
-- Lock an invoice FOR SHARE, so that a note cannot be inserted while the invoice is being
-- cancelled.
select id, type, payable_amount + prepaid_amount + adjusted_by as final_adjusted_amount
  from invoices
 where company_id = :company_id and id = :id and deleted_at is null
   for share;

-- name: invoice_update :exec
-- Write the whole draft from a merged body to a locked row. Can violate invoices_code_once_a_year
-- and invoices_reference_once.
with changed as (
  update invoices i
     set is_changed = true,
         code = request.code,
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
         reference = request.reference,
         metadata = request.metadata,
         prepayment = request.prepayment,
         payable_rounding_amount = request."payableRoundingAmount",
         net_amount = :net_amount::numeric,
         excluding_tax = :excluding_tax::numeric,
         including_tax = :including_tax::numeric,
         payable_amount = :payable_amount::numeric,
         prepaid_amount = :prepaid_amount::numeric,
         taxes = :taxes::jsonb,
         updated_at = clock_timestamp()
    from json_to_record(:body::json) as request (
           code numeric, type text, "isReady" boolean, buyer json, supplier json,
           "lineItems" json, "invoiceLevelAllowanceCharge" json, "currencyCode" text,
           "exchangeRate" numeric, payment json, delivery json, "billingPeriod" json,
           "references" json, reference text, metadata json,
           prepayment json, "payableRoundingAmount" numeric)
   where i.company_id = :company_id and i.id = :id
  returning i.id
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'change', format('invoice %s', id) from changed
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

-- name: invoice_export_batch :many
-- Return the id and the export object, as JSON text, of the next invoices below :before, newest
-- first: at most :most, and as many as have documents of :budget bytes, at least one.
with next as (
  select id, bytes
    from invoices
   where company_id = :company_id and deleted_at is null and id < :before
   order by id desc
   limit :most::bigint
), fitting as (
  select id, sum(bytes) over (order by id desc) - bytes as bytes_before from next
)
select e.id, e.export::text as export
  from fitting f
  join invoice_exports e on e.company_id = :company_id and e.id = f.id
 where f.bytes_before <= :budget::bigint
 order by e.id desc;
