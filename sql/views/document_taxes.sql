create or replace view document_taxes with (security_invoker = true) as
select document.company_id,
       document.status,
       document.issue_date,
       document.currency_code,
       tax.type,
       tax.rate,
       document.sign * tax.taxable as taxable,
       document.sign * tax.tax as tax
  from (select d.company_id, s.status, d.issue_date,
               coalesce(t.currency_code, d.currency_code) as currency_code, d.taxes,
               case when d.type in ('CREDIT_NOTE', 'REFUND_NOTE') then -1 else 1 end as sign
          from documents d
          join document_states s on s.company_id = d.company_id and s.id = d.id
          left join documents t
                 on d.kind = 'adjustment_note' and t.company_id = d.company_id
                and t.id = coalesce(d.invoice_id, d.consolidated_invoice_id)
         where d.deleted_at is null) document
  left join lateral jsonb_to_recordset(document.taxes) as tax (
         type text, rate numeric, taxable numeric, tax numeric) on true;
call publish('document_taxes', '
  Taxes of documents by type and rate, with a row for each. Credit and refund notes are negative.

  status: Status of the document.
  issue_date: When the document is issued.
  currency_code: Currency of the amounts, ISO 4217.
  type: Code of the tax type. Null: the document has no taxes.
  rate: Percentage. Null: an amount per unit.
  taxable: Amount that is taxed.
  tax: Amount of the tax.
');
