// The connection pool, and the statements, which are prepared once for each connection.

import pg from "pg";

const POOL_SIZE = 16; // as the default of the service

pg.types.setTypeParser(pg.types.builtins.INT8, Number);
pg.types.setTypeParser(pg.types.builtins.NUMERIC, Number);

const url = new URL(process.env.DATABASE_URL);
url.searchParams.delete("sslmode");

export const pool = new pg.Pool({
  connectionString: url.href,
  max: POOL_SIZE,
  options: "-c timezone=UTC -c jit=off",
});

const RECORD = `
  id, company_id, code, type, status, is_ready, issue_date, buyer, supplier, line_items,
  invoice_level_allowance_charge, currency_code, exchange_rate, net_amount, excluding_tax,
  including_tax, payable_amount, payable_amount + adjusted_by as final_adjusted_amount,
  created_at, updated_at, consolidated_invoice_id, payment, delivery, billing_period,
  document_references, prepayment, payable_rounding_amount, reference, metadata, last_submission`;

const STATEMENTS = {
  company_of_key: "select company_id from peers.api_keys where key_sha256 = $1",
  company: "select prefix, prefix_digits, party from peers.companies where id = $1",
  invoice_insert: `
    insert into peers.invoices (company_id, code, code_year, type, is_ready, issue_date, buyer,
           supplier, line_items, invoice_level_allowance_charge, currency_code, exchange_rate,
           payment, delivery, billing_period, document_references, net_amount, excluding_tax,
           including_tax, payable_amount, reference, metadata)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
           $20, $21, $22)
    returning id`,
  invoice_count: "select count(*) as total from peers.invoices where company_id = $1",
  invoice_page: `
    select ${RECORD} from peers.invoices where company_id = $1
     order by id desc limit $2 offset $3`,
  invoice_get: `select ${RECORD} from peers.invoices where company_id = $1 and id = $2`,
  invoice_batch: `
    select id, code, type, buyer, supplier, line_items, issue_date, invoice_level_allowance_charge,
           created_at, payment, delivery, billing_period, document_references, prepayment,
           payable_rounding_amount
      from peers.invoices
     where company_id = $1 and id < $2
     order by id desc
     limit $3`,
};

// Runs a statement and returns its rows.
export async function query(name, values) {
  const { rows } = await pool.query({ name, text: STATEMENTS[name], values });
  return rows;
}
