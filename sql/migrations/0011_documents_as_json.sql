-- Documents are stored as the text that clients sent. jsonb takes longer to store and to return,
-- and nothing searches in them. Their size is stored, because it takes long to find it out.

drop function if exists invoice_size(invoices);
drop function if exists adjustment_note_size(adjustment_notes);
drop function if exists consolidated_invoice_size(consolidated_invoices);

alter table invoices
  alter column buyer type json using buyer::json,
  alter column supplier type json using supplier::json,
  alter column line_items type json using line_items::json,
  alter column invoice_level_allowance_charge type json using invoice_level_allowance_charge::json,
  alter column payment type json using payment::json,
  alter column delivery type json using delivery::json,
  alter column billing_period type json using billing_period::json,
  alter column document_references type json using document_references::json,
  add column bytes int not null generated always as (
    coalesce(octet_length(buyer::text), 0)
    + coalesce(octet_length(supplier::text), 0)
    + octet_length(line_items::text)
    + coalesce(octet_length(invoice_level_allowance_charge::text), 0)
    + coalesce(octet_length(payment::text), 0)
    + coalesce(octet_length(delivery::text), 0)
    + coalesce(octet_length(billing_period::text), 0)
    + coalesce(octet_length(document_references::text), 0)
  ) stored;
comment on column invoices.bytes is 'Bytes of its JSON columns as text.';

alter table adjustment_notes
  alter column line_items type json using line_items::json,
  alter column payment type json using payment::json,
  alter column delivery type json using delivery::json,
  alter column billing_period type json using billing_period::json,
  alter column document_references type json using document_references::json,
  add column bytes int not null generated always as (
    octet_length(line_items::text)
    + coalesce(octet_length(payment::text), 0)
    + coalesce(octet_length(delivery::text), 0)
    + coalesce(octet_length(billing_period::text), 0)
    + coalesce(octet_length(document_references::text), 0)
  ) stored;
comment on column adjustment_notes.bytes is 'Bytes of its JSON columns as text.';

alter table consolidated_invoices
  alter column line_items type json using line_items::json,
  alter column invoice_level_allowance_charge type json using invoice_level_allowance_charge::json,
  add column bytes int not null generated always as (
    octet_length(line_items::text)
    + coalesce(octet_length(invoice_level_allowance_charge::text), 0)
  ) stored;
comment on column consolidated_invoices.bytes is 'Bytes of its JSON columns as text.';

alter table einvoice_requests
  add column bytes int not null generated always as (
    octet_length(buyer::text)
  ) stored;
comment on column einvoice_requests.bytes is 'Bytes of its buyer as text.';

-- Row-level security admits only rows of the company of the API key, which exists. The check of a
-- foreign key would lock the row of the company for each invoice.
alter table invoices drop constraint invoices_company_id_fkey;
alter table invoice_counts drop constraint invoice_counts_company_id_fkey;
