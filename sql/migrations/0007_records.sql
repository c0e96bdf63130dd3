-- The records of the API: its names, its order, its way of writing instants and amounts.

create view invoice_records with (security_invoker = true) as
select id,
       company_id,
       status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
       is_ready,
       code::text as invoice_code,
       type,
       buyer,
       supplier,
       line_items,
       payable_amount + adjusted_by as final_adjusted_amount,
       status,
       json_build_object('excludingTax', excluding_tax, 'includingTax', including_tax,
                         'payableAmount', payable_amount, 'netAmount', net_amount) as legal_monetary_total,
       instant(issue_date) as issue_date,
       invoice_level_allowance_charge,
       currency_code,
       exchange_rate,
       instant(created_at) as created_at,
       instant(updated_at) as updated_at
  from invoices
 where deleted_at is null;

create view invoice_exports with (security_invoker = true) as
select i.id,
       i.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits', full_code(
           case when i.type in ('SELF_BILLED_INVOICE', 'PENDING_FINALIZE_SELF_BILLED_INVOICE')
                then own.setting ->> 'SELF_BILLED_INVOICE_PREFIX' else own.setting ->> 'INVOICE_PREFIX' end,
           (own.setting ->> 'PREFIX_DIGIT_COUNT')::int, i.code),
         'invoiceCode', i.code::text,
         'buyer', case when i.type in ('SELF_BILLED_INVOICE', 'PENDING_FINALIZE_SELF_BILLED_INVOICE')
                       then own.buyer else i.buyer::json end,
         'supplier', case when i.type in ('SELF_BILLED_INVOICE', 'PENDING_FINALIZE_SELF_BILLED_INVOICE')
                          then i.supplier::json else own.supplier end,
         'lineItems', i.line_items,
         'invoiceDateTime', instant(i.issue_date),
         'invoiceLevelAllowanceCharge', i.invoice_level_allowance_charge,
         'consolidatedInvoiceCode', null,
         'createdAt', instant(i.created_at)) as export
  from companies c
 cross join lateral (select c.setting, as_buyer(c) as buyer, as_supplier(c) as supplier offset 0) own  -- once, not per row
  join invoices i on i.company_id = c.id
 where i.deleted_at is null;

create view submitted_document_records with (security_invoker = true) as
select d.id,
       d.company_id,
       d.invoice_id,
       d.adjustment_note_id,
       d.consolidated_invoice_id,
       d.status,
       s.submission_uid,
       d.uuid,
       d.long_id,
       d.document_hash,
       d.document_version,
       d.validation_link,
       d.errors,
       instant(d.submitted_at) as submitted_at,
       instant(d.validated_at) as validated_at,
       instant(d.cancelled_at) as cancelled_at,
       d.cancel_reason,
       case when d.status = 'Valid' then instant(d.submitted_at + interval '72 hours') end as cancellable_until,
       instant(d.rejection_requested_at) as rejection_requested_at,
       d.rejection_reason,
       instant(d.created_at) as created_at,
       instant(d.updated_at) as updated_at
  from submitted_documents d
  join submissions s on s.company_id = d.company_id and s.id = d.submission_id;

grant select on invoice_records, invoice_exports, submitted_document_records to einvoice_service;
