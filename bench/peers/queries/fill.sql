-- Statements of compare.py that fill the tables of the peers.

-- name: peer_company_insert :exec
insert into peers.companies (id, prefix, prefix_digits, party)
select c.id, invoice_prefix('INVOICE', c.setting), (c.setting ->> 'PREFIX_DIGIT_COUNT')::int,
       as_supplier(c)
  from companies c
 where c.id = :company_id;

-- name: peer_key_insert :exec
insert into peers.api_keys (key_sha256, company_id)
values (sha256(convert_to(:key, 'UTF8')), :company_id);

-- name: peer_invoices_insert :exec
insert into peers.invoices (id, company_id, code, code_year, type, status, is_ready, issue_date,
       buyer, supplier, line_items, invoice_level_allowance_charge, currency_code, exchange_rate,
       net_amount, excluding_tax, including_tax, payable_amount, adjusted_by, created_at,
       updated_at, consolidated_invoice_id, payment, delivery, billing_period,
       document_references, prepayment, payable_rounding_amount, reference, metadata)
select id, company_id, code, code_year, type, status, is_ready, issue_date,
       buyer, supplier, line_items, invoice_level_allowance_charge, currency_code, exchange_rate,
       net_amount, excluding_tax, including_tax, payable_amount, adjusted_by, created_at,
       updated_at, consolidated_invoice_id, payment, delivery, billing_period,
       document_references, prepayment, payable_rounding_amount, reference, metadata
  from invoices
 where company_id = :company_id and deleted_at is null
 order by id;

-- name: peer_ids_advance :exec
select setval(pg_get_serial_sequence('peers.invoices', 'id'), coalesce(max(id), 1))
  from peers.invoices;
