// The JSON schemas of requests and responses.

const text = (maxLength) => ({ type: "string", maxLength });
const money = { type: "number", minimum: 0, maximum: 999999999999 };
const percentage = { type: "number", minimum: 0, maximum: 1000 };
const words = { type: "string", maxLength: 300, pattern: "\\S" };

const registration = { type: "object", properties: { type: { type: "string" }, number: text(40) } };

const address = {
  type: "object",
  properties: {
    line1: text(150),
    line2: text(150),
    line3: text(150),
    city: text(50),
    state: text(50),
    zipCode: text(50),
    country: text(60),
  },
};

const party = {
  type: "object",
  properties: {
    type: { type: "string" },
    name: words,
    tin: text(40),
    registration,
    contactNumber: text(40),
    email: text(320),
    sstRegistrationNumber: text(35),
    msic: { type: "string", pattern: "^[0-9]{5}$" },
    businessActivityDescription: text(300),
    tourismTaxRegistrationNumber: text(17),
    address,
  },
};

const lineAdjustment = {
  type: "object",
  properties: { amount: money, rate: percentage, reason: text(300) },
  oneOf: [{ required: ["amount"] }, { required: ["rate"] }],
};

const taxDetail = {
  type: "object",
  required: ["taxType"],
  properties: {
    taxType: { type: "string" },
    taxRate: {
      type: "object",
      properties: { percentage, perUnitAmount: money, unitCount: money },
    },
  },
};

const lineItem = {
  type: "object",
  required: ["description", "unit"],
  properties: {
    id: text(50),
    description: words,
    classifications: { type: "array", minItems: 1, maxItems: 45, items: { type: "string" } },
    unit: {
      type: "object",
      required: ["price", "count"],
      properties: { code: { type: "string", pattern: "^[A-Z0-9]{1,3}$" }, price: money, count: money },
    },
    taxDetails: { type: "array", maxItems: 20, items: taxDetail },
    taxExemptionReason: text(300),
    originCountry: text(60),
    tariffCode: { type: "string", pattern: "^[A-Za-z0-9.]+$", maxLength: 12 },
    discount: lineAdjustment,
    charge: lineAdjustment,
  },
};

const documentAdjustments = {
  type: "array",
  maxItems: 100,
  items: { type: "object", required: ["amount"], properties: { amount: money, reason: text(300) } },
};

const optionalObject = { type: "object", nullable: true };

export const invoiceCreate = {
  type: "object",
  required: ["type", "code", "issueDateTime", "lineItems"],
  additionalProperties: false,
  properties: {
    type: {
      enum: [
        "INVOICE",
        "SELF_BILLED_INVOICE",
        "PENDING_FINALIZE_INVOICE",
        "PENDING_FINALIZE_SELF_BILLED_INVOICE",
      ],
    },
    code: { type: "integer", minimum: 1, maximum: 999999999999 },
    issueDateTime: { type: "string", format: "date-time" },
    buyer: party,
    supplier: party,
    lineItems: { type: "array", minItems: 1, maxItems: 1000, items: lineItem },
    isReady: { type: "boolean" },
    invoiceLevelAllowanceCharge: {
      type: "object",
      nullable: true,
      properties: { allowances: documentAdjustments, charges: documentAdjustments },
    },
    currencyCode: text(60),
    exchangeRate: { type: "number", exclusiveMinimum: 0, maximum: 1000000000 },
    payment: optionalObject,
    delivery: optionalObject,
    billingPeriod: optionalObject,
    references: { type: "array", nullable: true, maxItems: 100, items: { type: "object" } },
    reference: { type: "string", nullable: true, minLength: 1, maxLength: 100 },
    metadata: {
      type: "object",
      nullable: true,
      maxProperties: 50,
      additionalProperties: { type: "string", maxLength: 500 },
    },
  },
  allOf: [
    {
      if: { properties: { type: { const: "INVOICE" } } },
      then: { required: ["buyer"] },
    },
    {
      if: { properties: { type: { const: "SELF_BILLED_INVOICE" } } },
      then: { required: ["supplier"] },
    },
    {
      if: { properties: { currencyCode: { not: { const: "MYR" } } }, required: ["currencyCode"] },
      then: { required: ["exchangeRate"] },
    },
  ],
};

export const created = {
  type: "object",
  properties: {
    success: { type: "boolean" },
    message: { type: "string" },
    data: { type: "object", properties: { id: { type: "integer" } } },
  },
};

const textOrNull = { type: "string", nullable: true };
const document = {}; // Stored JSON is written as it is.

export const invoiceRecord = {
  type: "object",
  properties: {
    id: { type: "integer" },
    company_id: { type: "integer" },
    is_submitted_to_portal: { type: "boolean" },
    is_ready: { type: "boolean" },
    invoice_code: { type: "string" },
    type: { type: "string" },
    buyer: document,
    supplier: document,
    line_items: document,
    final_adjusted_amount: { type: "number" },
    status: { type: "string" },
    legal_monetary_total: {
      type: "object",
      properties: {
        excludingTax: { type: "number" },
        includingTax: { type: "number" },
        payableAmount: { type: "number" },
        netAmount: { type: "number" },
      },
    },
    issue_date: { type: "string" },
    invoice_level_allowance_charge: document,
    currency_code: { type: "string" },
    exchange_rate: { type: "number", nullable: true },
    created_at: { type: "string" },
    updated_at: { type: "string" },
    consolidated_invoice_id: { type: "integer", nullable: true },
    payment: document,
    delivery: document,
    billing_period: document,
    references: document,
    prepayment: document,
    payable_rounding_amount: { type: "number", nullable: true },
    reference: { type: "string", nullable: true },
    metadata: document,
    last_submission: document,
  },
};

export const invoiceList = {
  type: "object",
  properties: {
    meta: {
      type: "object",
      properties: {
        total: { type: "integer" },
        per_page: { type: "integer" },
        current_page: { type: "integer" },
        last_page: { type: "integer" },
        first_page: { type: "integer" },
        first_page_url: { type: "string" },
        last_page_url: { type: "string" },
        next_page_url: textOrNull,
        previous_page_url: textOrNull,
      },
    },
    data: { type: "array", items: invoiceRecord },
  },
};

export const page = {
  type: "object",
  properties: {
    page: { type: "integer", minimum: 1, default: 1 },
    per_page: { type: "integer", minimum: 1, maximum: 100, default: 10 },
  },
};

export const path = {
  type: "object",
  properties: { id: { type: "integer", minimum: 1 } },
};
