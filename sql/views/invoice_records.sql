create or replace view invoice_records with (security_invoker = true) as
select d.id,
       r.*,
       d.optional_members,
       record_text(d.id, d.optional_members, to_json(r)) as record
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 cross join lateral (
       select d.company_id,
              status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
              is_ready,
              code::text as invoice_code,
              d.type,
              case when d.type like '%SELF_BILLED%' then company_as_buyer(d.company_id)
                   else buyer end as buyer,
              supplier,
              line_items,
              payable_amount + prepaid_amount + adjusted_by as final_adjusted_amount,
              status,
              document_totals(excluding_tax, including_tax, payable_amount, net_amount)
                as legal_monetary_total,
              instant(issue_date) as issue_date,
              currency_code,
              exchange_rate,
              instant(created_at) as created_at,
              instant(updated_at) as updated_at,
              consolidated_invoice_id,
              reference,
              metadata,
              last_submission(s) as last_submission) r
 where d.kind = 'invoice' and d.deleted_at is null;
call publish('invoice_records', '
  Invoices as the API returns them. Deleted ones are left out.

  invoice_code: Number without prefix, as text.
  buyer: Buyer as the API shows it: the company for self-billed invoices. Null while not known.
  final_adjusted_amount: Value after valid notes.
  record: The record as JSON text.
', 'documents', 'document_states');
