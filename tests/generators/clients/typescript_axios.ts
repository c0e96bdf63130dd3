// A client with the code of openapi-generator: create, submit, wait until Valid, cancel.
import { Configuration, DocumentStatus, InvoicesApi } from "./index";
import { check, invoice, LIMIT_SECONDS, pause, start } from "./sale";

async function run(): Promise<void> {
  const basePath = process.env.BASE_URL;
  const api = new InvoicesApi(new Configuration({ basePath, apiKey: process.env.API_KEY }));
  const created = await api.createInvoice(invoice, process.env.CODE);
  const id = created.data.data.id;
  const repeated = await api.createInvoice(invoice, undefined, { validateStatus: () => true });
  check(repeated.status === 422, repeated.data);
  check((await api.submitInvoice(id, undefined, undefined, {})).data.success, id);
  const limit = Date.now() + LIMIT_SECONDS * 1000;
  let found = (await api.getInvoice(id)).data;
  while (found.status !== DocumentStatus.Valid) {
    check(Date.now() < limit, found.status);
    await pause();
    found = (await api.getInvoice(id)).data;
  }
  check(found.legal_monetary_total.payableAmount === 104.76, found.legal_monetary_total);
  const documents = (await api.listSubmittedDocumentsOfInvoice(id)).data;
  check(documents[0].validation_link, documents);
  await api.cancelInvoice(id, undefined, undefined, { reason: "The price was wrong" });
  const status = (await api.getInvoice(id)).data.status;
  check(status === DocumentStatus.Cancelled, status);
}

start(run);
