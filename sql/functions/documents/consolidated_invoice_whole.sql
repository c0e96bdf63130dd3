create or replace function consolidated_invoice_whole(for_company bigint, for_id bigint)
  returns text stable language sql
  begin atomic
  select left(r.record, -1)
           || ',"invoice_ids":' || to_json(d.invoice_ids)::text || '}'
    from consolidated_invoice_records r
    join documents d on d.company_id = r.company_id and d.id = r.id
   where r.company_id = for_company and r.id = for_id;
end;
comment on function consolidated_invoice_whole is
  'The record of a consolidated invoice as JSON text, with the invoices that it was made of.';
