-- Documents as they are printed. Every statement takes :company_id.

-- name: invoice_print :one
-- Return the status, number and time of an invoice, and its fields in the form of a request body;
-- see invoice_lock.
select i.status, i.issue_date,
       full_code(
         invoice_prefix(i.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
         i.code) as number,
       json_build_object(
         'type', i.type, 'buyer', i.buyer, 'supplier', i.supplier, 'lineItems', i.line_items,
         'invoiceLevelAllowanceCharge', i.invoice_level_allowance_charge,
         'currencyCode', i.currency_code, 'exchangeRate', i.exchange_rate, 'payment', i.payment,
         'delivery', i.delivery,
         'billingPeriod', i.billing_period, 'references', i.document_references,
         'prepayment', i.prepayment, 'payableRoundingAmount', i.payable_rounding_amount) as body
  from invoices i
  join companies c on c.id = i.company_id
 where i.company_id = :company_id and c.id = :company_id and i.id = :id and i.deleted_at is null;

-- name: adjustment_note_print :one
-- Return a note as invoice_print does. Parties, currency and originals are those of its target; see
-- adjustment_note_lock.
select n.status, n.issue_date,
       full_code(
         note_prefix(n.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
         n.code) as number,
       json_build_object(
         'type', n.type, 'lineItems', n.line_items, 'payment', n.payment, 'delivery', n.delivery,
         'billingPeriod', n.billing_period, 'references', n.document_references,
         'prepayment', n.prepayment, 'payableRoundingAmount', n.payable_rounding_amount,
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
 where n.company_id = :company_id and c.id = :company_id and n.id = :id and n.deleted_at is null;

-- name: consolidated_invoice_print :one
-- Return a consolidated invoice as invoice_print does. The other party is the general public; see
-- consolidated_invoice_lock.
select k.status, k.issue_date,
       full_code(
         consolidated_prefix(k.type, c.setting),
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
         k.code) as number,
       json_build_object(
         'type', k.type, 'lineItems', k.line_items,
         'invoiceLevelAllowanceCharge', k.invoice_level_allowance_charge,
         'prepayment', k.prepayment, 'payableRoundingAmount', k.payable_rounding_amount,
         'billingPeriod', json_build_object(
           'start', k.month, 'end', (k.month + interval '1 month' - interval '1 day')::date,
           'frequency', 'Monthly'),
         case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE' then 'supplier' else 'buyer' end,
         json_build_object('type', 'GENERAL_PUBLIC')) as body
  from consolidated_invoices k
  join companies c on c.id = k.company_id
 where k.company_id = :company_id and c.id = :company_id and k.id = :id and k.deleted_at is null;

-- name: submitted_document_print :one
-- Return the latest submitted document of an invoice or note, with its text as it was sent: the
-- entry of the request with its hash.
select d.status, d.number, d.issued_at, d.uuid, d.validation_link, d.validated_at, d.cancelled_at,
       d.cancel_reason,
       (select convert_from(decode(entry ->> 'document', 'base64'), 'UTF8')
          from json_array_elements(convert_from(s.body, 'UTF8')::json -> 'documents') entry
         where entry ->> 'documentHash' = d.document_hash
         limit 1) as document
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id
 where d.company_id = :company_id and s.company_id = :company_id
   and (d.invoice_id = :invoice_id or d.adjustment_note_id = :adjustment_note_id
        or d.consolidated_invoice_id = :consolidated_invoice_id)
 order by d.id desc
 limit 1;

-- name: submitted_document_link :one
-- Return the status and the validation link of the latest submitted document of a document. Without
-- one they are null. There is no row if the document does not exist.
select latest.status, latest.validation_link
  from document_keys
  left join lateral (
         select status, validation_link
           from submitted_documents
          where company_id = :company_id
            and (invoice_id = :invoice_id or adjustment_note_id = :adjustment_note_id
                 or consolidated_invoice_id = :consolidated_invoice_id)
          order by id desc
          limit 1) latest on true
 where document_keys.company_id = :company_id
   and (document_keys.invoice_id = :invoice_id
        or document_keys.adjustment_note_id = :adjustment_note_id
        or document_keys.consolidated_invoice_id = :consolidated_invoice_id);
