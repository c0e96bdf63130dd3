"""A client with the package of openapi-generator: create, submit, wait until Valid, cancel."""

import os
import time
from datetime import UTC, datetime

import openapi_client as generated
from openapi_client.exceptions import UnprocessableEntityException

LIMIT_SECONDS = 60

configuration = generated.Configuration(
    host=os.environ["BASE_URL"], api_key={"CompanyKey": os.environ["API_KEY"]}
)
invoice = generated.InvoiceCreate(
    type=generated.InvoiceType.INVOICE,
    code=int(os.environ["CODE"]),
    issueDateTime=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    buyer=generated.Party(
        type="LOCAL_INDIVIDUAL",
        name="Aminah binti Salleh",
        registration=generated.Registration(type="NRIC", number="900101105566"),
        contactNumber="+60123456789",
        address=generated.Address(
            line1="5 Jalan Dahlia", city="Shah Alam", state="10", zipCode="40150", country="MYS"
        ),
    ),
    lineItems=[
        generated.LineItem(
            id="1",
            description="Coffee beans, 1 kg",
            classifications=["022"],
            unit=generated.Unit(code="KGM", price=48.5, count=2),
            taxDetails=[generated.TaxDetail(taxType="02", taxRate=generated.TaxRate(percentage=8))],
            originCountry="MYS",
        )
    ],
)

with generated.ApiClient(configuration) as http:
    api = generated.InvoicesApi(http)
    created = api.create_invoice(invoice, idempotency_key=os.environ["CODE"])
    invoice_id = created.data.id
    try:
        api.create_invoice(invoice)
        raise SystemExit("A used code was accepted.")
    except UnprocessableEntityException as error:
        assert error.data.errors[0].path == "/code", error.data
        assert error.data.code == "code_taken", error.data
    assert api.submit_invoice(invoice_id, submit=generated.Submit()).success
    limit = time.monotonic() + LIMIT_SECONDS
    while (found := api.get_invoice(invoice_id)).status != generated.DocumentStatus.VALID:
        assert time.monotonic() < limit, found.status
        time.sleep(0.2)
    assert found.legal_monetary_total.payable_amount == 104.76, found.legal_monetary_total
    (document,) = api.list_submitted_documents_of_invoice(invoice_id)
    assert document.validation_link and document.submitted_at.tzinfo, document
    api.cancel_invoice(invoice_id, cancel=generated.Cancel(reason="The price was wrong"))
    assert api.get_invoice(invoice_id).status == generated.DocumentStatus.CANCELLED
    page = api.list_invoices(status=[generated.DocumentStatus.CANCELLED], per_page=1)
    assert page.meta.total >= 1 and page.data[0].id == invoice_id, page
