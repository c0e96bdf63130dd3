"""Creation of invoices, and of the records that belong to one."""

from typing import Any

from tests.api_reads import wait_for_status
from tests.api_requests import create_record, request_json, submit
from tests.conftest import AnyClient, until
from tests.harness.bodies import CODES, invoice, last_month, line, note, now
from tests.harness.sandbox import Administration


async def create_invoice(api: AnyClient, **changes: Any) -> int:
    """Create an invoice and return its id."""
    return (await create_record(api, "/api/invoices", **invoice(**changes)))["id"]


async def create_submitted_invoice(api: AnyClient, **changes: Any) -> int:
    """Create and submit an invoice, and return its id."""
    invoice_id = await create_invoice(api, **changes)
    assert (await submit(api, invoice_id))[0] == 200
    return invoice_id


async def create_valid_invoice(api: AnyClient, **changes: Any) -> int:
    """Create an invoice, submit it until it is Valid, and return its id."""
    invoice_id = await create_submitted_invoice(api, **changes)
    await wait_for_status(api, invoice_id, "Valid")
    return invoice_id


async def create_lost_invoice(
    api: AnyClient, sandbox: Administration, fault: str = "accept_then_drop", /, **changes: Any
) -> int:
    """Create an invoice, let a fault lose its submit, and return its id."""
    await sandbox.fault("submit", fault)
    invoice_id = await create_invoice(api, **changes)
    assert (await submit(api, invoice_id))[0] == 400
    return invoice_id


async def create_sale(api: AnyClient) -> int:
    """Create an invoice of last month that can be consolidated, and return its id."""
    lines = [line(taxDetails=[{"taxType": "06", "taxRate": {"percentage": 0}}])]
    return await create_invoice(
        api, issueDateTime=last_month(), buyer={"type": "GENERAL_PUBLIC"}, lineItems=lines
    )


async def create_delivery(api: AnyClient, webhook: int) -> int:
    """Cause a delivery to a webhook and return its id."""
    path = f"/api/webhooks/{webhook}/deliveries"
    await create_invoice(api)
    _, body = await until(lambda: request_json(api, "GET", path), lambda answer: answer[1]["data"])
    return body["data"][0]["id"]


async def create_one_of_each(api: AnyClient) -> dict[str, int]:
    """Create a record of every resource of a GENEROUS service, and return {place: id}."""
    invoice_id = await create_valid_invoice(api, metadata={"shop": "A"})
    family = {
        "type": "CONSOLIDATED_INVOICE",
        "code": next(CODES),
        "issueDateTime": now(),
        "invoiceIds": [await create_sale(api)],
    }
    asked = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah binti Salleh"}
    made = {
        "/api/adjustment-notes": await create_record(
            api, f"/api/invoices/{invoice_id}/adjustment-note", **note()
        ),
        "/api/consolidated-invoices": await create_record(
            api, "/api/consolidated-invoices", **family
        ),
        "/api/einvoice-requests": await create_record(api, "/api/einvoice-requests", **asked),
        "/api/webhooks": await create_record(api, "/api/webhooks", url="http://127.0.0.1:9/"),
    }
    return {"/api/invoices": invoice_id, **{place: data["id"] for place, data in made.items()}}
