-- Consolidated invoices. Every statement takes :company_id. A deleted one is not there.

-- name: consolidated_invoice_exists :value
select true from consolidated_invoices where company_id = :company_id and id = :id and deleted_at is null;

-- name: consolidated_invoice_lock :one
-- Locks a consolidated invoice for a change; the body is that of its document. Its buyer is the general public, or
-- where it is self-billed its supplier.
select k.id, k.status, k.type, k.attempts, k.issue_date, k.payable_amount,
       full_code(
         case when k.type like '%SELF_BILLED%' then c.setting ->> 'CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX'
              else c.setting ->> 'CONSOLIDATE_INVOICE_PREFIX' end,
         (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, k.code) as number,
       json_build_object(
         'type', k.type, 'code', k.code, 'issueDateTime', instant(k.issue_date), 'lineItems', k.line_items,
         case when k.type like '%SELF_BILLED%' then 'supplier' else 'buyer' end,
         json_build_object('type', 'GENERAL_PUBLIC')) as body
  from consolidated_invoices k
  join companies c on c.id = k.company_id
 where k.company_id = :company_id and c.id = :company_id and k.id = :id and k.deleted_at is null
   for update of k;
