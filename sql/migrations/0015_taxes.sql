-- The taxes of each document by type and rate, computed when it is stored, so that the taxes of a
-- month are a sum over its documents.

alter table invoices add column taxes jsonb;
alter table adjustment_notes add column taxes jsonb;
alter table consolidated_invoices add column taxes jsonb;
comment on column invoices.taxes is
  'Taxes by type and percentage: [{type, rate, taxable, tax}] in the currency of the document. '
  'rate is null for an amount per unit. Null: stored by an older version.';
comment on column adjustment_notes.taxes is
  'Taxes by type and percentage: [{type, rate, taxable, tax}] in the currency of the document. '
  'rate is null for an amount per unit. Null: stored by an older version.';
comment on column consolidated_invoices.taxes is
  'Taxes by type and percentage: [{type, rate, taxable, tax}] in MYR. '
  'rate is null for an amount per unit. Null: stored by an older version.';
