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
       r.rejection_reason
  from einvoice_requests r
  join companies c on c.id = r.company_id
 where r.deleted_at is null;
grant select on einvoice_request_records to einvoice_service, einvoice_reader;
comment on view einvoice_request_records is
  'E-invoice requests as the API returns them. Deleted ones are left out.';
comment on column einvoice_request_records.id is 'Identifies the request.';
comment on column einvoice_request_records.company_id is 'Company that made the sale.';
comment on column einvoice_request_records.invoice_code is
  'Code or full number of an invoice, as the buyer entered it.';
comment on column einvoice_request_records.document_details is
  'Buyer, supplier and invoice code as a JSON object.';
comment on column einvoice_request_records.status is 'Pending, Approve or Reject.';
comment on column einvoice_request_records.invoice_id is
  'Invoice that the approval made final. Null: not approved.';
comment on column einvoice_request_records.created_at is 'When it was created, as text.';
comment on column einvoice_request_records.updated_at is 'When the row was last changed, as text.';
comment on column einvoice_request_records.metadata is 'Texts of the client by key. Null: none.';
comment on column einvoice_request_records.rejection_reason is
  'Reason of the rejection. Null: not rejected, or no reason was given.';
