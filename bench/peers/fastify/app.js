// The application: create, list, get and export invoices.

import { createHash } from "node:crypto";
import { Readable } from "node:stream";

import Fastify from "fastify";

import { computeAmounts } from "./amounts.js";
import { pool, query } from "./database.js";
import * as schemas from "./schemas.js";

const CACHE_MS = 60_000;
const CACHE_SIZE = 10_000;
const BATCH = 500; // invoices that are exported at a time
const UNIQUE_VIOLATION = "23505";
const HOURS_EAST = 8; // of the business time zone, which has no summer time
const SUBMITTED = new Set(["Submitting", "Submitted", "Valid"]);
const CODE_USED = {
  path: "/code",
  rule: "unique",
  message: "The code has already been used this year.",
};

const app = Fastify({
  logger: { level: "warn" },
  ajv: { customOptions: { removeAdditional: false } },
  bodyLimit: 2 * 1024 * 1024,
});

const keys = new Map();

async function findCompany(key) {
  const digest = createHash("sha256").update(key).digest();
  const name = digest.toString("base64");
  const cached = keys.get(name);
  if (cached && cached.until > Date.now()) return cached.company;
  const [row] = await query("company_of_key", [digest]);
  if (!row) return undefined;
  if (keys.size >= CACHE_SIZE) keys.clear();
  keys.set(name, { company: row.company_id, until: Date.now() + CACHE_MS });
  return row.company_id;
}

function reject(reply, errors) {
  return reply.code(422).send({ success: false, message: "The request is invalid.", errors });
}

const instant = (date) => date.toISOString().replace("Z", "+00:00");
const json = (value) => (value === undefined || value === null ? null : JSON.stringify(value));

function toRecord(row) {
  return {
    ...row,
    is_submitted_to_portal: SUBMITTED.has(row.status),
    invoice_code: String(row.code),
    legal_monetary_total: {
      excludingTax: row.excluding_tax,
      includingTax: row.including_tax,
      payableAmount: row.payable_amount,
      netAmount: row.net_amount,
    },
    issue_date: instant(row.issue_date),
    created_at: instant(row.created_at),
    updated_at: instant(row.updated_at),
    references: row.document_references,
  };
}

function toExport(row, owner) {
  const code = String(row.code);
  const isSelfBilled = row.type.includes("SELF_BILLED");
  return {
    invoiceCodeWithPrefixAndDigits: owner.prefix + code.padStart(owner.prefix_digits, "0"),
    invoiceCode: code,
    buyer: isSelfBilled ? owner.party : row.buyer,
    supplier: isSelfBilled ? row.supplier : owner.party,
    lineItems: row.line_items,
    invoiceDateTime: instant(row.issue_date),
    invoiceLevelAllowanceCharge: row.invoice_level_allowance_charge,
    consolidatedInvoiceCode: null,
    createdAt: instant(row.created_at),
    payment: row.payment,
    delivery: row.delivery,
    billingPeriod: row.billing_period,
    references: row.document_references,
    prepayment: row.prepayment,
    payableRoundingAmount: row.payable_rounding_amount,
  };
}

function describePage(total, page, perPage) {
  const last = Math.max(1, Math.ceil(total / perPage));
  const url = (number) => `/api/invoices?page=${number}&per_page=${perPage}`;
  return {
    total,
    per_page: perPage,
    current_page: page,
    last_page: last,
    first_page: 1,
    first_page_url: url(1),
    last_page_url: url(last),
    next_page_url: page < last ? url(page + 1) : null,
    previous_page_url: page > 1 ? url(Math.min(page - 1, last)) : null,
  };
}

async function* writeExports(company) {
  const [owner] = await query("company", [company]);
  let before = "9223372036854775807";
  let start = "[";
  for (;;) {
    const rows = await query("invoice_batch", [company, before, BATCH]);
    if (!rows.length) break;
    yield start + rows.map((row) => JSON.stringify(toExport(row, owner))).join(",");
    start = ",";
    before = rows.at(-1).id;
  }
  yield start === "[" ? "[]" : "]";
}

app.setErrorHandler((error, request, reply) => {
  if (!error.validation) {
    request.log.error(error);
    return reply.code(error.statusCode ?? 500).send({ success: false, message: error.message });
  }
  return reject(
    reply,
    error.validation.map((found) => ({
      path: found.instancePath,
      rule: found.keyword,
      message: found.message,
    })),
  );
});

app.get("/readyz", async () => ({ ready: true }));

app.register(async (api) => {
  api.decorateRequest("company", 0);
  api.addHook("onRequest", async (request, reply) => {
    const company = await findCompany(request.headers["x-api-key"] ?? "");
    if (company === undefined) {
      return reply.code(401).send({ success: false, message: "The API key is not valid." });
    }
    request.company = company;
  });

  api.post(
    "/invoices",
    { schema: { body: schemas.invoiceCreate, response: { 201: schemas.created } } },
    async (request, reply) => {
      const { body, company } = request;
      const amounts = computeAmounts(body);
      if (!amounts) {
        const message = "The discounts or allowances exceed the amount.";
        return reject(reply, [{ path: "/lineItems", rule: "amount", message }]);
      }
      const issued = new Date(body.issueDateTime);
      const year = new Date(issued.getTime() + HOURS_EAST * 3_600_000).getUTCFullYear();
      try {
        const [{ id }] = await query("invoice_insert", [
          company,
          body.code,
          year,
          body.type,
          body.isReady ?? false,
          issued,
          json(body.buyer),
          json(body.supplier),
          json(body.lineItems),
          json(body.invoiceLevelAllowanceCharge),
          body.currencyCode ?? "MYR",
          body.exchangeRate ?? null,
          json(body.payment),
          json(body.delivery),
          json(body.billingPeriod),
          json(body.references),
          amounts.net,
          amounts.excluding,
          amounts.including,
          amounts.payable,
          body.reference ?? null,
          json(body.metadata),
        ]);
        reply.code(201);
        return { success: true, message: "Invoice created.", data: { id } };
      } catch (error) {
        if (error.code !== UNIQUE_VIOLATION) throw error;
        return reject(reply, [CODE_USED]);
      }
    },
  );

  api.get(
    "/invoices",
    { schema: { querystring: schemas.page, response: { 200: schemas.invoiceList } } },
    async ({ company, query: { page, per_page: perPage } }) => {
      const [[{ total }], rows] = await Promise.all([
        query("invoice_count", [company]),
        query("invoice_page", [company, perPage, (page - 1) * perPage]),
      ]);
      return { meta: describePage(total, page, perPage), data: rows.map(toRecord) };
    },
  );

  api.get("/invoices/export-all", (request, reply) => {
    reply.header("content-type", "application/json; charset=utf-8");
    reply.header("content-disposition", 'attachment; filename="invoices.json"');
    return reply.send(Readable.from(writeExports(request.company)));
  });

  api.get(
    "/invoices/:id",
    { schema: { params: schemas.path, response: { 200: schemas.invoiceRecord } } },
    async ({ company, params: { id } }, reply) => {
      const [row] = await query("invoice_get", [company, id]);
      if (!row) return reply.code(404).send({ success: false, message: "Invoice not found." });
      return toRecord(row);
    },
  );
}, { prefix: "/api" });

for (const name of ["SIGTERM", "SIGINT"]) {
  process.once(name, async () => {
    await app.close();
    await pool.end();
    process.exit(0);
  });
}

await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) });
