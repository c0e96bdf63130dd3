-- Adjustment notes: credit, debit and refund notes against an invoice.

-- name: adjustment_note_insert :value
-- Stores a draft and returns its id. Breaks adjustment_notes_code_once_a_type when the code is taken.
with stored as (
  insert into adjustment_notes (company_id, invoice_id, code, type, issue_date, line_items,
         net_amount, excluding_tax, including_tax, payable_amount)
  select :company_id::bigint, :invoice_id::bigint, (body ->> 'adjustmentNoteCode')::numeric::bigint, body ->> 'type',
         :issue_date::timestamptz, body -> 'lineItems',
         :net_amount::numeric, :excluding_tax::numeric, :including_tax::numeric, :payable_amount::numeric
    from (select :body::jsonb as body) request
  returning id
), noted as (
  insert into events (company_id, type, data)
  select :company_id::bigint, 'adjustment_note.created',
         jsonb_build_object('adjustment_note_id', id, 'invoice_id', :invoice_id::bigint)
    from stored
)
select id from stored;

-- name: adjustment_note_live :value
-- True when a note that the portal has, or may have, refers to the invoice.
select true
  from adjustment_notes
 where company_id = :company_id and invoice_id = :invoice_id
   and deleted_at is null and status in ('Submitting', 'Submitted', 'Valid')
 limit 1;
