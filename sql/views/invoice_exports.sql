create or replace view invoice_exports with (security_invoker = true) as
select i.id,
       i.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits',
         document_number(i.type, i.code, own.setting),
         'invoiceCode', i.code::text,
         'buyer', case when i.type like '%SELF_BILLED%' then own.buyer
                       else i.buyer end,
         'supplier', case when i.type like '%SELF_BILLED%' then i.supplier
                          else own.supplier end,
         'lineItems', i.line_items,
         'invoiceDateTime', instant(i.issue_date),
         -- A join would read the index for each invoice, also without a consolidated invoice.
         'consolidatedInvoiceCode', case when i.consolidated_invoice_id is not null then (
           select code::text
             from documents
            where company_id = i.company_id and id = i.consolidated_invoice_id) end,
         'createdAt', instant(i.created_at)) as export,
       i.optional_members
  from companies c
 -- offset 0 keeps the planner from computing the company for each row.
 cross join lateral (
   select c.setting, as_buyer(c) as buyer, as_supplier(c) as supplier offset 0) own
  join documents i on i.company_id = c.id
 where i.kind = 'invoice' and i.deleted_at is null;
call publish('invoice_exports', '
  Invoices as the export endpoint returns them. Deleted ones are left out.

  export: The invoice as a JSON object, without its optional members.
', 'documents');
