-- Portal: 13
create or replace view consolidation_candidates with (security_invoker = true) as
select f.*,
       f.consolidated_invoice_id is null and (f.status <> 'Draft' or f.was_accepted)
         as was_submitted
  from (select i.company_id,
               i.id,
               i.code,
               document_number(i.type, i.code, c.setting) as number,
               i.type,
               s.status,
               i.issue_date,
               i.currency_code,
               i.payable_amount + i.prepaid_amount as total_amount,
               i.consolidated_invoice_id,
               coalesce(other.party, '{}')::jsonb <> '{}'
               and other.party ->> 'type' is distinct from 'GENERAL_PUBLIC' as is_named,
               -- Read for few invoices, each by the index: exists() would read all documents once.
               case when s.attempts = 0 then false
                    when s.status in ('Submitted', 'Valid', 'Cancelled') then true
                    else (select true
                            from submitted_documents d
                           where d.company_id = i.company_id
                             and d.document_id = i.id
                             and d.status not in ('Rejected', 'NotSent')
                           limit 1) is true end as was_accepted,
               i.excluding_tax
          from documents i
          join document_states s on s.company_id = i.company_id and s.id = i.id
          join companies c on c.id = i.company_id
         cross join lateral (
           select case when i.type like '%SELF_BILLED%' then i.supplier
                       else i.buyer end as party) other
         where i.kind = 'invoice' and i.deleted_at is null) f;
call publish('consolidation_candidates', '
  Invoices with the facts that the rules of consolidation read. Deleted ones are left out.

  number: Number with prefix.
  total_amount: Value, prepaid or to pay.
  is_named: Whether the other party is named, not the general public.
  was_accepted: Whether the portal has or had a document of the invoice.
  was_submitted: Whether it was submitted individually, and is in no consolidated invoice.
', 'documents', 'document_states');
