create or replace view adjustment_note_records with (security_invoker = true) as
select d.id,
       r.*,
       d.optional_members,
       record_text(d.id, d.optional_members, to_json(r)) as record
  from documents d
  join document_states s on s.company_id = d.company_id and s.id = d.id
 cross join lateral (
       select d.company_id,
              invoice_id,
              consolidated_invoice_id,
              code,
              d.type,
              line_items,
              instant(issue_date) as issue_date,
              status,
              status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
              document_totals(excluding_tax, including_tax, payable_amount, net_amount)
                as legal_monetary_total,
              instant(created_at) as created_at,
              instant(updated_at) as updated_at,
              reference,
              metadata,
              last_submission(s) as last_submission) r
 where d.kind = 'adjustment_note' and d.deleted_at is null;
call publish('adjustment_note_records', '
  Adjustment notes as the API returns them. Deleted ones are left out.

  record: The record as JSON text.
', 'documents', 'document_states');
