create or replace view invoice_records with (security_invoker = true) as
select id,
       company_id,
       status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
       is_ready,
       code::text as invoice_code,
       type,
       document_buyer(
         type,
         buyer,
         (select as_buyer(c) from companies c where c.id = invoices.company_id)) as buyer,
       supplier,
       line_items,
       payable_amount + prepaid_amount + adjusted_by as final_adjusted_amount,
       status,
       json_build_object(
         'excludingTax', excluding_tax,
         'includingTax', including_tax,
         'payableAmount', payable_amount,
         'netAmount', net_amount) as legal_monetary_total,
       instant(issue_date) as issue_date,
       invoice_level_allowance_charge,
       currency_code,
       exchange_rate,
       instant(created_at) as created_at,
       instant(updated_at) as updated_at,
       consolidated_invoice_id,
       payment,
       delivery,
       billing_period,
       document_references as "references",
       prepayment,
       payable_rounding_amount,
       reference,
       metadata,
       case when not_sent is not null then not_sent
            when attempts > 0
            then (select o.outcome
                    from submission_outcomes o
                   where o.company_id = invoices.company_id and o.invoice_id = invoices.id
                   order by o.id desc
                   limit 1)
       end as last_submission
  from invoices
 where deleted_at is null;
grant select on invoice_records to einvoice_service, einvoice_reader;
comment on view invoice_records is 'Invoices as the API returns them. Deleted ones are left out.';
comment on column invoice_records.id is 'Identifies the invoice.';
comment on column invoice_records.company_id is
  'Company that issues it, or receives a self-billed one.';
comment on column invoice_records.is_submitted_to_portal is
  'Whether the portal has it or is being sent it.';
comment on column invoice_records.is_ready is
  'Whether the client marked the invoice as ready to be submitted.';
comment on column invoice_records.invoice_code is 'Number without prefix, as text.';
comment on column invoice_records.type is
  'INVOICE, SELF_BILLED_INVOICE, or one of these that is not final yet (PENDING_FINALIZE_...).';
comment on column invoice_records.buyer is
  'Buyer as the API shows it: the company for self-billed invoices. Null while not known.';
comment on column invoice_records.supplier is
  'Supplier of a self-billed invoice as the API shows it. Null for other invoices.';
comment on column invoice_records.line_items is 'Line items as the API shows them.';
comment on column invoice_records.final_adjusted_amount is 'Value after valid notes.';
comment on column invoice_records.status is
  'Draft, Submitting, Submitted, Valid, Invalid or Cancelled.';
comment on column invoice_records.legal_monetary_total is 'Totals as a JSON object.';
comment on column invoice_records.issue_date is 'When it is issued, as text.';
comment on column invoice_records.invoice_level_allowance_charge is
  'Allowance or charge of the whole document, as the API shows it. Null: none.';
comment on column invoice_records.currency_code is 'Currency of all amounts, ISO 4217.';
comment on column invoice_records.exchange_rate is
  'MYR for one unit of the currency. Null: not given.';
comment on column invoice_records.created_at is 'When it was created, as text.';
comment on column invoice_records.updated_at is 'When the row was last changed, as text.';
comment on column invoice_records.consolidated_invoice_id is
  'Consolidated invoice that includes the invoice now. Null: none.';
comment on column invoice_records.payment is
  'Terms and means of payment as the API shows them. Null: none.';
comment on column invoice_records.delivery is 'Delivery as the API shows it. Null: none.';
comment on column invoice_records.billing_period is
  'Period that is billed, as the API shows it. Null: none.';
comment on column invoice_records."references" is
  'References to other documents, as the API shows them. Null: none.';
comment on column invoice_records.reference is 'Reference that the client chose. Null: none.';
comment on column invoice_records.metadata is 'Texts of the client by key. Null: none.';
comment on column invoice_records.last_submission is
  'Outcome of the latest submission: status, code, message and time, and the reasons if nothing '
  'reached the portal. Null: never submitted.';
comment on column invoice_records.prepayment is
  'Payment before the issue, as the API shows it. Null: none.';
comment on column invoice_records.payable_rounding_amount is
  'Rounding that is part of the amount to pay. Null: none.';
