-- compatible: 0040
-- Sales that are in no consolidated invoice, of which the overview looks for the oldest.

create index invoices_unconsolidated on invoices (company_id, issue_date)
  where consolidated_invoice_id is null
    and status in ('Draft', 'Invalid')
    and deleted_at is null;
