-- The taxes of a month by type and rate, of Valid documents by their issue date in Malaysia. Credit
-- and refund notes are subtracted. A rate of null is an amount per unit. A type of null counts
-- documents without taxes.
--
--   psql "$DATABASE_URL" -v company_id=1 -v month=2026-11 -f sql/inspect/taxes_of_month.sql

select type,
       rate,
       currency_code as currency,
       count(*) as documents,
       sum(taxable) as taxable,
       sum(tax) as tax
  from document_taxes
 where company_id = :company_id
   and status = 'Valid'
   and issue_date >= (:'month' || '-01')::timestamp at time zone 'Asia/Kuala_Lumpur'
   and issue_date < ((:'month' || '-01')::timestamp + interval '1 month')
                    at time zone 'Asia/Kuala_Lumpur'
 group by type, rate, currency_code
 order by type, rate, currency_code;
