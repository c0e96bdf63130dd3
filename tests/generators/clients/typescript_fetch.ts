// A client with the types of openapi-typescript: create, submit, wait until Valid, cancel.
import createClient from "openapi-fetch";
import { check, invoice, LIMIT_SECONDS, pause, start } from "./sale";
import type { components, paths } from "./schema";

// @ts-expect-error: the type, the code, the date and the lines are required.
const incomplete: components["schemas"]["InvoiceCreate"] = { buyer: invoice.buyer };

async function run(): Promise<void> {
  const headers = { "X-API-Key": process.env.API_KEY };
  const api = createClient<paths>({ baseUrl: process.env.BASE_URL, headers });
  const created = await api.POST("/api/invoices", { body: invoice });
  check(created.data, created.error);
  const rejected = await api.POST("/api/invoices", { body: incomplete });
  check(rejected.response.status === 422 && rejected.error?.code, rejected.data);
  const stranger = await api.GET("/api/invoices", { headers: { "X-API-Key": "wrong" } });
  check(stranger.response.status === 401 && stranger.error?.code === undefined, stranger.error);
  const gone: components["responses"]["InvoiceNotFound"]["content"]["application/json"]["code"] = "newer than this client";
  const place = { params: { path: { id: created.data.data.id } } };
  const submitted = await api.POST("/api/invoices/{id}/submit-to-portal", { ...place, body: {} });
  check(submitted.data?.success, submitted.error);
  const limit = Date.now() + LIMIT_SECONDS * 1000;
  let found = (await api.GET("/api/invoices/{id}", place)).data;
  while (found?.status !== "Valid") {
    check(Date.now() < limit, found);
    await pause();
    found = (await api.GET("/api/invoices/{id}", place)).data;
  }
  check(found.legal_monetary_total.payableAmount === 104.76, found.legal_monetary_total);
  const documents = await api.GET("/api/invoices/{id}/submitted-documents", place);
  check(documents.data?.[0].validation_link, documents.error);
  const body = { reason: "The price was wrong" };
  const cancelled = await api.POST("/api/invoices/{id}/cancel-latest-invoice-submitted", { ...place, body });
  check(cancelled.data?.success, cancelled.error);
  const status = (await api.GET("/api/invoices/{id}", place)).data?.status;
  check(status === "Cancelled", status);
}

start(run);
