-- Documents are stored as the text that clients sent. jsonb takes longer to store and to return,
-- and nothing searches in them.
alter table invoices
  alter column buyer type json using buyer::json,
  alter column supplier type json using supplier::json,
  alter column line_items type json using line_items::json,
  alter column invoice_level_allowance_charge type json
    using invoice_level_allowance_charge::json,
  alter column payment type json using payment::json,
  alter column delivery type json using delivery::json,
  alter column billing_period type json using billing_period::json,
  alter column document_references type json using document_references::json,
  -- Row-level security admits only rows of the company of the API key, which exists. The check of
  -- a foreign key would lock the row of the company for each invoice.
  drop constraint invoices_company_id_fkey;
alter table invoice_counts drop constraint invoice_counts_company_id_fkey;
