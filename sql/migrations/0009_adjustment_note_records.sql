-- Adjustment notes as the API shows them, and counts of what its other lists hold.

-- How many live records a list of a company has: the sum of its slots, as in invoice_counts.
create table list_counts (
  company_id bigint not null references companies,
  list       text not null,
  slot       smallint not null,
  live       bigint not null,
  primary key (company_id, list, slot)
) with (fillfactor = 50);
call keep_companies_apart('list_counts');
grant select, insert, update on list_counts to einvoice_service;

insert into list_counts (company_id, list, slot, live)
select company_id, 'adjustment_notes', 0, count(*) from adjustment_notes where deleted_at is null group by company_id;

create index adjustment_notes_by_status on adjustment_notes (company_id, status, id) where deleted_at is null;
create index adjustment_notes_by_issue_date on adjustment_notes (company_id, issue_date, id) where deleted_at is null;

create function note_prefix(type text, setting jsonb) returns text
  immutable parallel safe language sql
  return setting ->> (type || '_PREFIX');

create view adjustment_note_records with (security_invoker = true) as
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
       instant(updated_at) as updated_at
  from adjustment_notes
 where deleted_at is null;

create view adjustment_note_exports with (security_invoker = true) as
select n.id,
       n.company_id,
       json_build_object(
         'invoiceCodeWithPrefixAndDigits',
         full_code(note_prefix(n.type, c.setting), (c.setting ->> 'PREFIX_DIGIT_COUNT')::int, n.code),
         'code', n.code,
         'type', n.type,
         'lineItems', n.line_items,
         'issueDate', instant(n.issue_date),
         'targetInvoiceCode', i.code::text,
         'targetConsolidatedInvoiceCode', k.code::text,
         'createdAt', instant(n.created_at)) as export
  from adjustment_notes n
  join companies c on c.id = n.company_id
  left join invoices i on i.company_id = n.company_id and i.id = n.invoice_id
  left join consolidated_invoices k on k.company_id = n.company_id and k.id = n.consolidated_invoice_id
 where n.deleted_at is null;

grant select on adjustment_note_records, adjustment_note_exports to einvoice_service;
