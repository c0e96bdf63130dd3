-- How an invoice or a note is paid, delivered, what period it bills and what it refers to, as the request has it. Portal: 10

alter table invoices
  add column payment jsonb,
  add column delivery jsonb,
  add column billing_period jsonb,
  add column document_references jsonb;

alter table adjustment_notes
  add column payment jsonb,
  add column delivery jsonb,
  add column billing_period jsonb,
  add column document_references jsonb;

create or replace view invoice_records with (security_invoker = true) as
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
       instant(updated_at) as updated_at,
       consolidated_invoice_id,
       payment,
       delivery,
       billing_period,
       document_references as "references"
  from invoices
 where deleted_at is null;

create or replace view adjustment_note_records with (security_invoker = true) as
select id,
       company_id,
       invoice_id,
       consolidated_invoice_id,
       code,
       type,
       line_items,
       instant(issue_date) as issue_date,
       status,
       status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
       json_build_object('excludingTax', excluding_tax, 'includingTax', including_tax,
                         'payableAmount', payable_amount, 'netAmount', net_amount) as legal_monetary_total,
       instant(created_at) as created_at,
       instant(updated_at) as updated_at,
       payment,
       delivery,
       billing_period,
       document_references as "references"
  from adjustment_notes
 where deleted_at is null;
