-- Credit, debit and refund notes to an invoice or a consolidated invoice. Every statement takes
-- :company_id. Deleted notes have no row.

-- name: adjustment_note_insert :one
-- Store a draft note to the target that is not null, and return its id and the tax registrations of
-- the company. Can violate adjustment_notes_code_once_a_type and adjustment_notes_reference_once.
with stored as (
  insert into adjustment_notes (company_id, invoice_id, consolidated_invoice_id, code, type,
         issue_date, line_items, payment, delivery, billing_period, document_references, reference,
         metadata, prepayment, payable_rounding_amount, net_amount, excluding_tax, including_tax,
         payable_amount, prepaid_amount, taxes)
  select :company_id::bigint, :invoice_id::bigint, :consolidated_invoice_id::bigint,
         "adjustmentNoteCode", type, :issue_date::timestamptz, "lineItems", payment, delivery,
         "billingPeriod", "references", reference, metadata, prepayment,
         "payableRoundingAmount", :net_amount::numeric,
         :excluding_tax::numeric, :including_tax::numeric, :payable_amount::numeric,
         :prepaid_amount::numeric, :taxes::jsonb
    from json_to_record(:body::json) as request (
           "adjustmentNoteCode" numeric, type text, "lineItems" json, payment json, delivery json,
           "billingPeriod" json, "references" json, reference text, metadata json,
           prepayment json, "payableRoundingAmount" numeric)
  returning id, invoice_id, consolidated_invoice_id
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'adjustment_note.created',
         subject_ids(invoice_id, id, consolidated_invoice_id)
    from stored
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'create', format('adjustment note %s', id) from stored
)
select id,
       (select sst_registration_number from companies where id = :company_id)
         as sst_registration_number,
       (select tourism_tax_registration_number from companies where id = :company_id)
         as tourism_tax_registration_number
  from stored;

-- name: adjustment_note_get :value
select to_json(r) from adjustment_note_records r where company_id = :company_id and id = :id;

-- name: adjustment_note_page :many
-- Return a page of records, newest first; see invoice_page.
with page as materialized (
  select id, bytes + coalesce(octet_length(metadata::text), 0) as bytes
    from adjustment_notes
   where company_id = :company_id and deleted_at is null
   order by id desc
   limit :per_page::bigint offset :offset::bigint
)
select counted.total, page.id,
       case when (select sum(bytes) from page) <= :budget::bigint
            then (select to_json(r)
                    from adjustment_note_records r
                   where r.company_id = :company_id and r.id = page.id)
       end as record
  from (select coalesce(sum(live), 0)::bigint as total
          from record_counts
         where company_id = :company_id and list = 'adjustment_notes') counted
  left join page on true
 order by page.id desc;

-- name: adjustment_notes_of :many
-- Return the notes of an invoice or a consolidated invoice, the latest first, at most :most.
select id, type, code, status, issue_date, payable_amount
  from adjustment_notes
 where company_id = :company_id
   and (invoice_id = :invoice_id or consolidated_invoice_id = :consolidated_invoice_id)
   and deleted_at is null
 order by id desc
 limit :most::bigint;

-- name: adjustment_note_search :many
-- Return a page as adjustment_note_page does, with filters and a sort order.
select total, is_exact, id, record
  from adjustment_note_search(
       :company_id, :filters::jsonb, :sort, :per_page, :offset, :budget);

-- name: adjustment_note_lock_invoice :one
-- Lock the invoice that a note adjusts, before the note itself, so that changes of notes to one
-- invoice run one after another.
select i.id
  from invoices i
 where i.company_id = :company_id
   and i.id = (select invoice_id from adjustment_notes where company_id = :company_id and id = :id)
   for update;

-- name: adjustment_note_lock_consolidated :one
-- Lock the consolidated invoice that a note adjusts, as adjustment_note_lock_invoice does.
select k.id
  from consolidated_invoices k
 where k.company_id = :company_id
   and k.id = (select consolidated_invoice_id
                 from adjustment_notes
                where company_id = :company_id and id = :id)
   for update;

-- name: adjustment_note_lock :one
-- Lock a note for a change. `body` is a document with the parties and the currency of the target.
-- `adjustable` is the amount by which the target can still be reduced, less other notes that would
-- reduce it: credit and refund notes being submitted, and debit notes being cancelled.
select n.id, n.status, n.type, n.attempts, n.is_changed, n.issue_date,
       n.payable_amount + n.prepaid_amount as total_amount, n.invoice_id, n.consolidated_invoice_id,
       full_code(
         note_prefix(n.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
         n.code) as number,
       c.sst_registration_number, c.tourism_tax_registration_number,
       coalesce(
         i.payable_amount + i.prepaid_amount + i.adjusted_by,
         k.payable_amount + k.prepaid_amount + k.adjusted_by)
         - (select coalesce(sum(o.payable_amount + o.prepaid_amount), 0)
              from adjustment_notes o
             where o.company_id = :company_id
               and o.id <> n.id
               and (o.invoice_id = n.invoice_id
                    or o.consolidated_invoice_id = n.consolidated_invoice_id)
               and case o.type
                   when 'DEBIT_NOTE'
                   then o.status = 'Valid'
                        and exists (select
                                      from submitted_documents d
                                     where d.company_id = :company_id
                                       and d.adjustment_note_id = o.id
                                       and d.cancellation_requested_at is not null)
                   else o.status in ('Submitting', 'Submitted')
                   end) as adjustable,
       json_build_object(
         'type', n.type, 'adjustmentNoteCode', n.code,
         'adjustmentNoteIssueDate', instant(n.issue_date), 'lineItems', n.line_items,
         'payment', n.payment, 'delivery', n.delivery, 'billingPeriod', n.billing_period,
         'references', n.document_references, 'reference', n.reference, 'metadata', n.metadata,
         'prepayment', n.prepayment,
         'payableRoundingAmount', n.payable_rounding_amount,
         'selfBilled', coalesce(i.type, k.type) like '%SELF_BILLED%',
         'buyer', case when k.type = 'CONSOLIDATED_INVOICE'
                       then json_build_object('type', 'GENERAL_PUBLIC')
                       else i.buyer::json end,
         'supplier', case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE'
                          then json_build_object('type', 'GENERAL_PUBLIC')
                          else i.supplier::json end,
         'currencyCode', coalesce(i.currency_code, 'MYR'), 'exchangeRate', i.exchange_rate,
         'originals', (select json_agg(json_build_object('uuid', d.uuid, 'number', d.number))
                         from submitted_documents d
                        where d.company_id = :company_id and d.status = 'Valid'
                          and (d.invoice_id = n.invoice_id
                               or d.consolidated_invoice_id = n.consolidated_invoice_id))) as body
  from adjustment_notes n
  join companies c on c.id = n.company_id
  left join invoices i on i.company_id = n.company_id and i.id = n.invoice_id
  left join consolidated_invoices k
         on k.company_id = n.company_id and k.id = n.consolidated_invoice_id
 where n.company_id = :company_id and c.id = :company_id and n.id = :id and n.deleted_at is null
   for update of n;

-- name: adjustment_note_update :exec
-- Write the whole draft from a merged body to a locked row. Can violate
-- adjustment_notes_code_once_a_type and adjustment_notes_reference_once.
with changed as (
  update adjustment_notes n
     set is_changed = true,
         code = request."adjustmentNoteCode",
         type = request.type,
         issue_date = :issue_date::timestamptz,
         line_items = request."lineItems",
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
           "adjustmentNoteCode" numeric, type text, "lineItems" json, payment json, delivery json,
           "billingPeriod" json, "references" json, reference text, metadata json,
           prepayment json, "payableRoundingAmount" numeric)
   where n.company_id = :company_id and n.id = :id
  returning n.id, n.invoice_id, n.consolidated_invoice_id
), audited as (
  insert into audit_log (company_id, action, subject)
  select :company_id::bigint, 'change', format('adjustment note %s', id) from changed
)
insert into events (company_id, type, data)
select :company_id::bigint, 'adjustment_note.updated',
       subject_ids(invoice_id, id, consolidated_invoice_id)
  from changed;

-- name: adjustment_note_delete :exec
-- Hide a locked note and free its code.
with hidden as (
  update adjustment_notes
     set deleted_at = clock_timestamp(), updated_at = clock_timestamp()
   where company_id = :company_id and id = :id
  returning id, invoice_id, consolidated_invoice_id,
            fingerprint(to_jsonb(adjustment_notes)) as left_as
), audited as (
  insert into audit_log (company_id, action, subject, after_sha256)
  select :company_id::bigint, 'delete', format('adjustment note %s', id), left_as from hidden
)
insert into events (company_id, type, data)
select :company_id::bigint, 'adjustment_note.deleted',
       subject_ids(invoice_id, id, consolidated_invoice_id)
  from hidden;

-- name: adjustment_note_export :one
select export::text as export, export ->> 'invoiceCodeWithPrefixAndDigits' as full_code
  from adjustment_note_exports
 where company_id = :company_id and id = :id;

-- name: adjustment_note_export_batch :many
-- Return the next export objects below :before; see invoice_export_batch.
with next as (
  select id, bytes
    from adjustment_notes
   where company_id = :company_id and deleted_at is null and id < :before
   order by id desc
   limit :most::bigint
), fitting as (
  select id, sum(bytes) over (order by id desc) - bytes as bytes_before from next
)
select e.id, e.export::text as export
  from fitting f
  join adjustment_note_exports e on e.company_id = :company_id and e.id = f.id
 where f.bytes_before <= :budget::bigint
 order by e.id desc;

-- name: adjustment_note_live :value
-- Return true if a note to the target that is not null is being submitted, submitted or valid.
select true
  from adjustment_notes
 where company_id = :company_id
   and (invoice_id = :invoice_id or consolidated_invoice_id = :consolidated_invoice_id)
   and deleted_at is null and status in ('Submitting', 'Submitted', 'Valid')
 limit 1;

-- name: adjustment_note_code_used :value
-- Return true if another note of the type has the code.
select true
  from adjustment_notes
 where company_id = :company_id and type = :type and code = :code and deleted_at is null
   and id is distinct from :except_id
 limit 1;
