create or replace view einvoice_request_records with (security_invoker = true) as
select r.id,
       r.company_id,
       r.invoice_code,
       json_build_object('buyer', r.buyer, 'supplier', as_supplier(c),
                         'invoice_code', r.invoice_code) as document_details,
       r.status,
       r.invoice_id,
       instant(r.created_at) as created_at,
       instant(r.updated_at) as updated_at,
       r.metadata,
       r.rejection_reason,
       r.document_id as linked_invoice_id
  from einvoice_requests r
  join companies c on c.id = r.company_id
 where r.deleted_at is null;
call publish('einvoice_request_records', '
  E-invoice requests as the API returns them. Deleted ones are left out.

  document_details: Buyer, supplier and invoice code as a JSON object.
  linked_invoice_id: Invoice of the link by which the buyer made the request. Null: the request
    names it by invoice_code.
', 'einvoice_requests');
