"""Bodies and the requests that tests send with them."""

import itertools
from datetime import datetime, timedelta, timezone

from conftest import until

_codes = itertools.count(1)


def now(**ago):
    """An instant as a client writes it, a little in the past."""
    at = datetime.now(timezone.utc) - timedelta(seconds=5) - timedelta(**ago)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def line(**changes):
    item = {
        "id": "1",
        "description": "Coffee beans, 1 kg",
        "classifications": ["022"],
        "unit": {"code": "KGM", "price": 48.5, "count": 2},
        "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
        "originCountry": "MYS",
    }
    return {**item, **changes}


def buyer(**changes):
    party = {
        "type": "LOCAL_INDIVIDUAL",
        "name": "Aminah binti Salleh",
        "registration": {"type": "NRIC", "number": "900101105566"},
        "contactNumber": "+60123456789",
        "address": {"line1": "5 Jalan Dahlia", "city": "Shah Alam", "state": "10", "zipCode": "40150", "country": "MYS"},
    }
    return {**party, **changes}


def invoice(**changes):
    """A body that is created, submitted and found Valid; a member of value None is left out."""
    body = {
        "type": "INVOICE",
        "code": next(_codes),
        "issueDateTime": now(),
        "buyer": buyer(),
        "lineItems": [line()],
    }
    return {name: value for name, value in {**body, **changes}.items() if value is not None}


def note(**changes):
    body = {
        "targetInvoiceType": "INVOICE",
        "type": "CREDIT_NOTE",
        "adjustmentNoteCode": next(_codes),
        "adjustmentNoteIssueDate": now(),
        "lineItems": [line(unit={"code": "KGM", "price": 48.5, "count": 1})],
    }
    return {**body, **changes}


async def answered(api, method, path, **request):
    """(status, body) of the answer to a request."""
    async with api.request(method, path, **request) as response:
        return response.status, await response.json()


def routes(api, *methods):
    """(method, path with its {parts}) of every route of the service under /api, or of those with the methods."""
    known = ((route.method, route.resource.canonical) for route in api.app.router.routes() if route.resource)
    return [(method, path) for method, path in known if path.startswith("/api/") and (not methods or method in methods)]


async def created(api, **changes):
    """The id of a new invoice."""
    async with api.post("/api/invoices", json=invoice(**changes)) as response:
        body = await response.json()
        assert response.status == 201, body
        return body["data"]["id"]


async def record(api, id):
    async with api.get(f"/api/invoices/{id}") as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def documents(api, id):
    """The submitted documents of an invoice, newest first."""
    async with api.get(f"/api/invoices/{id}/submitted-documents") as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def submitted(api, id):
    """(status, body) of the answer to a submit."""
    async with api.post(f"/api/invoices/{id}/submit-to-portal", json={}) as response:
        return response.status, await response.json()


async def cancelled(api, id, **body):
    async with api.post(f"/api/invoices/{id}/cancel-latest-invoice-submitted", json=body) as response:
        return response.status, await response.json()


async def reaches(api, id, status):
    """The record once it has the status. Fails at once where it can no longer come to it."""
    ends = {"Valid", "Invalid", "Cancelled", "Draft", status}
    found = await until(lambda: record(api, id), lambda found: found["status"] in ends)
    assert found["status"] == status, (found["status"], await documents(api, id))
    return found


async def valid_invoice(api, **changes):
    """The id of an invoice that the portal has found Valid."""
    id = await created(api, **changes)
    assert (await submitted(api, id))[0] == 200
    await reaches(api, id, "Valid")
    return id
