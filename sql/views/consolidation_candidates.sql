-- Portal: 13
create or replace view consolidation_candidates with (security_invoker = true) as
select f.*,
       f.consolidated_invoice_id is null and (f.status <> 'Draft' or f.was_accepted)
         as was_submitted
  from (select i.company_id,
               i.id,
               i.code,
               full_code(
                 invoice_prefix(i.type, c.setting),
                 (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
                 i.code) as number,
               i.type,
               i.status,
               i.issue_date,
               i.currency_code,
               i.payable_amount + i.prepaid_amount as total_amount,
               i.consolidated_invoice_id,
               coalesce(other.party, '{}')::jsonb <> '{}'
               and other.party ->> 'type' is distinct from 'GENERAL_PUBLIC' as is_named,
               -- Read for few invoices, each by the index: exists() would read all documents once.
               case when i.attempts = 0 then false
                    when i.status in ('Submitted', 'Valid', 'Cancelled') then true
                    else (select true
                            from submitted_documents d
                           where d.company_id = i.company_id
                             and d.invoice_id = i.id
                             and d.status not in ('Rejected', 'NotSent')
                           limit 1) is true end as was_accepted,
               i.excluding_tax
          from invoices i
          join companies c on c.id = i.company_id
         cross join lateral (
           select case when i.type like '%SELF_BILLED%' then i.supplier
                       else i.buyer end as party) other
         where i.deleted_at is null) f;
grant select on consolidation_candidates to einvoice_service, einvoice_reader;
comment on view consolidation_candidates is
  'Invoices with the facts that the rules of consolidation read. Deleted ones are left out.';
comment on column consolidation_candidates.company_id is
  'Company that issues it, or receives a self-billed one.';
comment on column consolidation_candidates.id is 'Invoice.';
comment on column consolidation_candidates.code is
  'Number without prefix, unique in a year among those that are not deleted.';
comment on column consolidation_candidates.number is 'Number with prefix.';
comment on column consolidation_candidates.type is
  'INVOICE, SELF_BILLED_INVOICE, or one of these that is not final yet (PENDING_FINALIZE_...).';
comment on column consolidation_candidates.status is
  'Draft, Submitting, Submitted, Valid, Invalid or Cancelled.';
comment on column consolidation_candidates.issue_date is 'When it is issued.';
comment on column consolidation_candidates.currency_code is 'Currency of all amounts, ISO 4217.';
comment on column consolidation_candidates.excluding_tax is 'Amount without taxes.';
comment on column consolidation_candidates.total_amount is 'Value, prepaid or to pay.';
comment on column consolidation_candidates.consolidated_invoice_id is
  'Consolidated invoice that includes the invoice now. Null: none.';
comment on column consolidation_candidates.is_named is
  'Whether the other party is named, not the general public.';
comment on column consolidation_candidates.was_accepted is
  'Whether the portal has or had a document of the invoice.';
comment on column consolidation_candidates.was_submitted is
  'Whether it was submitted individually, and is in no consolidated invoice.';
