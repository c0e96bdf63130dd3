-- The export object of an invoice with the members that only a consolidated invoice has. Its other
-- party has no name.
create or replace view consolidated_invoice_exports with (security_invoker = true) as
select k.id,
       k.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits',
         document_number(k.type, k.code, c.setting),
         'invoiceCode', k.code::text,
         'type', k.type,
         'month', to_char(k.month, 'YYYY-MM'),
         'buyer', case when k.type like '%SELF_BILLED%' then as_buyer(c)
                       else json_build_object('type', 'GENERAL_PUBLIC') end,
         'supplier', case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE'
                          then json_build_object('type', 'GENERAL_PUBLIC')
                          else as_supplier(c) end,
         'lineItems', k.line_items,
         'invoiceDateTime', instant(k.issue_date),
         'consolidatedInvoiceCode', null,
         'invoiceIds', k.invoice_ids,
         'createdAt', instant(k.created_at)) as export,
       k.optional_members
  from documents k
  join companies c on c.id = k.company_id
 where k.kind = 'consolidated_invoice' and k.deleted_at is null;
call publish('consolidated_invoice_exports', '
  Consolidated invoices as the export endpoint returns them. Deleted ones are left out.

  export: The consolidated invoice as a JSON object, without its optional members.
', 'documents');
