create or replace view adjustment_note_exports with (security_invoker = true) as
select n.id,
       n.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits',
         document_number(n.type, n.code, c.setting),
         'code', n.code,
         'type', n.type,
         'lineItems', n.line_items,
         'issueDate', instant(n.issue_date),
         'targetInvoiceCode', i.code::text,
         'targetConsolidatedInvoiceCode', k.code::text,
         'createdAt', instant(n.created_at)) as export,
       n.optional_members
  from documents n
  join companies c on c.id = n.company_id
  left join documents i on i.company_id = n.company_id and i.id = n.invoice_id
  left join documents k on k.company_id = n.company_id and k.id = n.consolidated_invoice_id
 where n.kind = 'adjustment_note' and n.deleted_at is null;
call publish('adjustment_note_exports', '
  Adjustment notes as the export endpoint returns them. Deleted ones are left out.

  export: The note as a JSON object, without its optional members.
', 'documents');
