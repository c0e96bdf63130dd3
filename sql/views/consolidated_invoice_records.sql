create or replace view consolidated_invoice_records with (security_invoker = true) as
select d.id,
       r.*,
       d.optional_members,
       record_text(d.id, d.optional_members, to_json(r)) as record
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 cross join lateral (
       select d.company_id,
              status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
              code::text as invoice_code,
              d.type,
              to_char(month, 'YYYY-MM') as month,
              cardinality(invoice_ids) as invoice_count,
              line_items,
              payable_amount + prepaid_amount + adjusted_by as final_adjusted_amount,
              status,
              document_totals(excluding_tax, including_tax, payable_amount, net_amount)
                as legal_monetary_total,
              instant(issue_date) as issue_date,
              instant(created_at) as created_at,
              instant(updated_at) as updated_at,
              last_submission(s) as last_submission) r
 where d.kind = 'consolidated_invoice' and d.deleted_at is null;
call publish('consolidated_invoice_records', '
  Consolidated invoices as the API returns them. Deleted ones are left out.

  invoice_code: Number without prefix, as text.
  month: Month of its sales, as YYYY-MM.
  invoice_count: Number of invoices that it was made of.
  final_adjusted_amount: Value after valid notes, in MYR.
  record: The record as JSON text.
', 'documents', 'document_states');
