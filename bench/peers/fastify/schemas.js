// The JSON schemas of requests and responses.

const text = (maxLength) => ({ type: "string", maxLength });
const texts = (lengths) => Object.fromEntries(Object.entries(lengths).map(([name, length]) => [name, text(length)]));
const object = (properties, required = []) => ({ type: "object", required, properties });
const money = { type: "number", minimum: 0, maximum: 999999999999 };
const percentage = { type: "number", minimum: 0, maximum: 1000 };
const words = { type: "string", maxLength: 300, pattern: "\\S" };
const string = { type: "string" };
const number = { type: "number" };
const integer = { type: "integer" };
const boolean = { type: "boolean" };
const optionalObject = { type: "object", nullable: true };

const party = object({
  type: string,
  name: words,
  tin: text(40),
  registration: object({ type: string, number: text(40) }),
  contactNumber: text(40),
  email: text(320),
  sstRegistrationNumber: text(35),
  msic: { type: "string", pattern: "^[0-9]{5}$" },
  businessActivityDescription: text(300),
  tourismTaxRegistrationNumber: text(17),
  address: object(texts({ line1: 150, line2: 150, line3: 150, city: 50, state: 50, zipCode: 50, country: 60 })),
});

const lineAdjustment = {
  ...object({ amount: money, rate: percentage, reason: text(300) }),
  oneOf: [{ required: ["amount"] }, { required: ["rate"] }],
};

const taxRate = object({ percentage, perUnitAmount: money, unitCount: money });
const taxDetail = object({ taxType: string, taxRate }, ["taxType"]);
const unitCode = { type: "string", pattern: "^[A-Z0-9]{1,3}$" };

const lineItem = object(
  {
    id: text(50),
    description: words,
    classifications: { type: "array", minItems: 1, maxItems: 45, items: string },
    unit: object({ code: unitCode, price: money, count: money }, ["price", "count"]),
    taxDetails: { type: "array", maxItems: 20, items: taxDetail },
    taxExemptionReason: text(300),
    originCountry: text(60),
    tariffCode: { type: "string", pattern: "^[A-Za-z0-9.]+$", maxLength: 12 },
    discount: lineAdjustment,
    charge: lineAdjustment,
  },
  ["description", "unit"],
);

const documentAdjustments = {
  type: "array",
  maxItems: 100,
  items: object({ amount: money, reason: text(300) }, ["amount"]),
};

const invoiceTypes = [
  "INVOICE",
  "SELF_BILLED_INVOICE",
  "PENDING_FINALIZE_INVOICE",
  "PENDING_FINALIZE_SELF_BILLED_INVOICE",
];

const requiredIf = (properties, name, required = []) => ({ if: { properties, required }, then: { required: [name] } });

export const invoiceCreate = {
  ...object(
    {
      type: { enum: invoiceTypes },
      code: { type: "integer", minimum: 1, maximum: 999999999999 },
      issueDateTime: { type: "string", format: "date-time" },
      buyer: party,
      supplier: party,
      lineItems: { type: "array", minItems: 1, maxItems: 1000, items: lineItem },
      isReady: boolean,
      invoiceLevelAllowanceCharge: {
        ...optionalObject,
        properties: { allowances: documentAdjustments, charges: documentAdjustments },
      },
      currencyCode: text(60),
      exchangeRate: { type: "number", exclusiveMinimum: 0, maximum: 1000000000 },
      payment: optionalObject,
      delivery: optionalObject,
      billingPeriod: optionalObject,
      references: { type: "array", nullable: true, maxItems: 100, items: { type: "object" } },
      reference: { type: "string", nullable: true, minLength: 1, maxLength: 100 },
      metadata: { ...optionalObject, maxProperties: 50, additionalProperties: text(500) },
    },
    ["type", "code", "issueDateTime", "lineItems"],
  ),
  additionalProperties: false,
  allOf: [
    requiredIf({ type: { const: "INVOICE" } }, "buyer"),
    requiredIf({ type: { const: "SELF_BILLED_INVOICE" } }, "supplier"),
    requiredIf({ currencyCode: { not: { const: "MYR" } } }, "exchangeRate", ["currencyCode"]),
  ],
};

export const created = object({ success: boolean, message: string, data: object({ id: integer }) });

const textOrNull = { type: "string", nullable: true };
const numberOrNull = { type: "number", nullable: true };
const document = {}; // Stored JSON is written as it is.

export const invoiceRecord = object({
  id: integer,
  company_id: integer,
  is_submitted_to_portal: boolean,
  is_ready: boolean,
  invoice_code: string,
  type: string,
  buyer: document,
  supplier: document,
  line_items: document,
  final_adjusted_amount: number,
  status: string,
  legal_monetary_total: object({
    excludingTax: number,
    includingTax: number,
    payableAmount: number,
    netAmount: number,
  }),
  issue_date: string,
  invoice_level_allowance_charge: document,
  currency_code: string,
  exchange_rate: numberOrNull,
  created_at: string,
  updated_at: string,
  consolidated_invoice_id: { type: "integer", nullable: true },
  payment: document,
  delivery: document,
  billing_period: document,
  references: document,
  prepayment: document,
  payable_rounding_amount: numberOrNull,
  reference: textOrNull,
  metadata: document,
  last_submission: document,
});

export const invoiceList = object({
  meta: object({
    total: integer,
    per_page: integer,
    current_page: integer,
    last_page: integer,
    first_page: integer,
    first_page_url: string,
    last_page_url: string,
    next_page_url: textOrNull,
    previous_page_url: textOrNull,
  }),
  data: { type: "array", items: invoiceRecord },
});

export const page = object({
  page: { type: "integer", minimum: 1, default: 1 },
  per_page: { type: "integer", minimum: 1, maximum: 100, default: 10 },
});

export const path = object({ id: { type: "integer", minimum: 1 } });
