-- Consolidated invoices as the API shows them, what they are made of, and the invoices that name them.

alter table consolidated_invoices
  add column invoice_ids bigint[] not null default '{}',  -- what it was made of; stays when a cancellation frees them
  add column invoice_level_allowance_charge jsonb;
create index consolidated_invoices_by_status on consolidated_invoices (company_id, status, id) where deleted_at is null;
create index consolidated_invoices_by_issue_date on consolidated_invoices (company_id, issue_date, id)
  where deleted_at is null;

insert into list_counts (company_id, list, slot, live)
select company_id, 'consolidated_invoices', 0, count(*) from consolidated_invoices where deleted_at is null group by company_id;

-- The last day on whose sales the authority suspends its exclusions for the company. Portal: 13
alter table companies add column consolidation_relaxed_until date;

create function consolidated_prefix(type text, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> case when type = 'CONSOLIDATED_SELF_BILLED_INVOICE' then 'CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX'
                          else 'CONSOLIDATE_INVOICE_PREFIX' end;

create function invoice_prefix(type text, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> case when type like '%SELF_BILLED%' then 'SELF_BILLED_INVOICE_PREFIX' else 'INVOICE_PREFIX' end;

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
       consolidated_invoice_id
  from invoices
 where deleted_at is null;

create or replace view invoice_exports with (security_invoker = true) as
select i.id,
       i.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits',
         full_code(invoice_prefix(i.type, own.setting), (own.setting ->> 'PREFIX_DIGIT_COUNT')::int, i.code),
         'invoiceCode', i.code::text,
         'buyer', case when i.type like '%SELF_BILLED%' then own.buyer else i.buyer::json end,
         'supplier', case when i.type like '%SELF_BILLED%' then i.supplier::json else own.supplier end,
         'lineItems', i.line_items,
         'invoiceDateTime', instant(i.issue_date),
         'invoiceLevelAllowanceCharge', i.invoice_level_allowance_charge,
         'consolidatedInvoiceCode', k.code::text,
         'createdAt', instant(i.created_at)) as export
  from companies c
 cross join lateral (select c.setting, as_buyer(c) as buyer, as_supplier(c) as supplier offset 0) own  -- once, not per row
  join invoices i on i.company_id = c.id
  left join consolidated_invoices k on k.company_id = i.company_id and k.id = i.consolidated_invoice_id
 where i.deleted_at is null;

create view consolidated_invoice_records with (security_invoker = true) as
select id,
       company_id,
       status in ('Submitting', 'Submitted', 'Valid') as is_submitted_to_portal,
       code::text as invoice_code,
       type,
       to_char(month, 'YYYY-MM') as month,
       cardinality(invoice_ids) as invoice_count,
       line_items,
       payable_amount + adjusted_by as final_adjusted_amount,
       status,
       json_build_object('excludingTax', excluding_tax, 'includingTax', including_tax,
                         'payableAmount', payable_amount, 'netAmount', net_amount) as legal_monetary_total,
       instant(issue_date) as issue_date,
       invoice_level_allowance_charge,
       instant(created_at) as created_at,
       instant(updated_at) as updated_at
  from consolidated_invoices
 where deleted_at is null;

-- The export object of an invoice, with what only a consolidated one has. Its other party has no name.
create view consolidated_invoice_exports with (security_invoker = true) as
select k.id,
       k.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits',
         full_code(consolidated_prefix(k.type, c.setting), (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, k.code),
         'invoiceCode', k.code::text,
         'type', k.type,
         'month', to_char(k.month, 'YYYY-MM'),
         'buyer', case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE' then as_buyer(c)
                       else json_build_object('type', 'GENERAL_PUBLIC') end,
         'supplier', case when k.type = 'CONSOLIDATED_SELF_BILLED_INVOICE' then json_build_object('type', 'GENERAL_PUBLIC')
                          else as_supplier(c) end,
         'lineItems', k.line_items,
         'invoiceDateTime', instant(k.issue_date),
         'invoiceLevelAllowanceCharge', k.invoice_level_allowance_charge,
         'consolidatedInvoiceCode', null,
         'invoiceIds', k.invoice_ids,
         'createdAt', instant(k.created_at)) as export
  from consolidated_invoices k
  join companies c on c.id = k.company_id
 where k.deleted_at is null;

-- What the rules of consolidation look at in an invoice. `is_named`: its other party is somebody; `was_accepted`: the
-- portal has, or had, a document of it. Portal: 13
create view consolidation_candidates with (security_invoker = true) as
select i.company_id,
       i.id,
       i.code,
       full_code(invoice_prefix(i.type, c.setting), (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, i.code) as number,
       i.type,
       i.status,
       i.issue_date,
       i.currency_code,
       i.payable_amount,
       i.consolidated_invoice_id,
       coalesce(other.party, '{}') <> '{}' and other.party ->> 'type' is distinct from 'GENERAL_PUBLIC' as is_named,
       exists (select from submitted_documents d
                where d.company_id = i.company_id and d.invoice_id = i.id and d.status <> 'Rejected') as was_accepted
  from invoices i
  join companies c on c.id = i.company_id
 cross join lateral (select case when i.type like '%SELF_BILLED%' then i.supplier else i.buyer end as party) other
 where i.deleted_at is null;

grant select on consolidated_invoice_records, consolidated_invoice_exports, consolidation_candidates to einvoice_service;
