"""A client with the package of openapi-python-client: create, submit, wait until Valid, cancel."""

import os
import time
from datetime import UTC, datetime

from einvoicing_client import AuthenticatedClient, models
from einvoicing_client.api.e_invoice_requests import create_einvoice_request
from einvoicing_client.api.invoices import (
    cancel_invoice,
    create_invoice,
    get_invoice,
    list_invoices,
    list_submitted_documents_of_invoice,
    submit_invoice,
)

LIMIT_SECONDS = 60

client = AuthenticatedClient(
    os.environ["BASE_URL"], os.environ["API_KEY"], prefix="", auth_header_name="X-API-Key"
)
registration = models.Registration(type_="NRIC", number="900101105566")
address = models.Address(
    line1="5 Jalan Dahlia", city="Shah Alam", state="10", zip_code="40150", country="MYS"
)
party = {
    "type_": "LOCAL_INDIVIDUAL",
    "name": "Aminah binti Salleh",
    "registration": registration,
    "contact_number": "+60123456789",
    "address": address,
}
invoice = models.InvoiceCreate(
    type_=models.InvoiceType.INVOICE,
    code=int(os.environ["CODE"]),
    issue_date_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    buyer=models.Party(**party),
    line_items=[
        models.LineItem(
            id="1",
            description="Coffee beans, 1 kg",
            classifications=["022"],
            unit=models.Unit(code="KGM", price=48.5, count=2),
            tax_details=[models.TaxDetail(tax_type="02", tax_rate=models.TaxRate(percentage=8))],
            origin_country="MYS",
        )
    ],
)

created = create_invoice.sync(client=client, body=invoice, idempotency_key=os.environ["CODE"])
assert isinstance(created, models.Stored), created
invoice_id = created.data.id
repeated = create_invoice.sync(client=client, body=invoice)
assert isinstance(repeated, models.Faults) and repeated.errors[0].path == "/code", repeated
assert repeated.code == "code_taken", repeated
newer = models.ApiError.from_dict({"message": "New", "code": "newer_than_this_client"})
assert newer.code == "newer_than_this_client", newer
stranger = create_invoice.sync(
    client=AuthenticatedClient(os.environ["BASE_URL"], "wrong"), body=invoice
)
assert isinstance(stranger, models.Unauthorized) and not stranger.code, stranger
submitted = submit_invoice.sync(invoice_id, client=client, body=models.Submit())
assert isinstance(submitted, models.Success), submitted
limit = time.monotonic() + LIMIT_SECONDS
while (found := get_invoice.sync(invoice_id, client=client)).status != models.DocumentStatus.VALID:
    assert time.monotonic() < limit, found.status
    time.sleep(0.2)
assert found.legal_monetary_total.payable_amount == 104.76, found.legal_monetary_total
(document,) = list_submitted_documents_of_invoice.sync(invoice_id, client=client)
assert document.validation_link and document.submitted_at.tzinfo, document
reason = models.Cancel(reason="The price was wrong")
cancelled = cancel_invoice.sync(invoice_id, client=client, body=reason)
assert isinstance(cancelled, models.Success), cancelled
found = get_invoice.sync(invoice_id, client=client)
assert found.status == models.DocumentStatus.CANCELLED, found.status
page = list_invoices.sync(client=client, status=[models.DocumentStatus.CANCELLED], per_page=1)
assert page.data[0].id == invoice_id, page
asked = create_einvoice_request.sync(
    client=client, body=models.EinvoiceRequestCreate(invoice_code=os.environ["CODE"], **party)
)
assert isinstance(asked, models.Created), asked
