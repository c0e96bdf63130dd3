"""Bodies and the requests that tests send with them."""

import base64
import itertools
import re
import secrets
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from zoneinfo import ZoneInfo

from conftest import until

from service.commands.integrations import insert_integration_key, insert_organization
from service.config import read_config
from service.db.transactions import Database, connected_pool

_codes = itertools.count(1)


def now(**ago):
    """An instant as a client writes it, a little in the past."""
    at = datetime.now(UTC) - timedelta(seconds=5) - timedelta(**ago)
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
        "address": {
            "line1": "5 Jalan Dahlia",
            "city": "Shah Alam",
            "state": "10",
            "zipCode": "40150",
            "country": "MYS",
        },
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
    known = (
        (route.method, route.resource.canonical)
        for route in api.app.router.routes()
        if route.resource
    )
    return [
        (method, path)
        for method, path in known
        if path.startswith("/api/") and (not methods or method in methods)
    ]


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


async def submitted(api, id, place="/api/invoices"):
    """(status, body) of the answer to a submit."""
    async with api.post(f"{place}/{id}/submit-to-portal", json={}) as response:
        return response.status, await response.json()


async def cancelled(api, id, **body):
    async with api.post(
        f"/api/invoices/{id}/cancel-latest-invoice-submitted", json=body
    ) as response:
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


# All surfaces and resources at once


INTEGRATIONS = "/api/integrations/"
#: What tells of the API itself, to everybody.
KEYLESS = {"/api/openapi.json", "/api/docs", "/api/docs/docs.js", "/api/docs/docs.css"}
#: What a company signs with: one record, which has no id.
CERTIFICATE = "/api/companies/signing-certificate"
#: Where the records of a company are, and by what name an answer calls one that is not there.
PLACES = {
    "/api/invoices": "Invoice",
    "/api/adjustment-notes": "Adjustment note",
    "/api/consolidated-invoices": "Consolidated invoice",
    "/api/einvoice-requests": "E-invoice request",
    "/api/webhooks": "Webhook",
}
#: A service in which every resource can be filled on any day, and no quota is used up.
GENEROUS = {
    "CONSOLIDATION_DAYS": "40",
    "WEBHOOK_ALLOW_INTERNAL": "true",
    "INTEGRATION_REQUESTS_PER_MINUTE": "10000000",
    "SECRET_KEY": base64.b64encode(b"k" * 32).decode(),
}


async def integration_key(environment, name="Penang Trading Group"):
    """{key, key_id, account_id} of a new key of the account of that name."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 2) as pool:
        return await insert_integration_key(config, Database(pool), name)


async def open_integrations(api, environment, name="Penang Trading Group"):
    """Lets a client speak to the integration surface too, with a new key of an account; gives the account's id."""
    made = await integration_key(environment, name)
    api.session.headers["X-Portal-Key"] = made["key"]
    return made["account_id"]


def filled(path, id=1, part=1):
    """A route's path with its {id}, and with `part` in place of every other {part}."""
    return re.sub(r"\{\w+\}", str(part), path.replace("{id}", str(id)))


def place_of(path):
    """The resource that a route is of: the path up to its first {part}."""
    return path.partition("/{")[0]


def plain_refusal(path, status, body):
    """(status, body) of a refusal as the other routes would word it, once it has its surface's shape. Contract: 1."""
    if path.startswith(INTEGRATIONS):
        assert list(body) == ["error", "message", "details"], body
        assert body["error"] == HTTPStatus(status).phrase
        assert not (status == 422 or "message" in body["details"])
        broken = status == 400 and "errors" in body["details"]
        return 422 if broken else status, {"message": body["message"], **body["details"]}
    if path.startswith("/api/validation/"):
        assert next(iter(body)) == "success" and body["success"] is False, body
        return status, {name: member for name, member in body.items() if name != "success"}
    return status, body


def last_month():
    """An instant in the middle of last month in the business time zone."""
    return f"{datetime.now(ZoneInfo('Asia/Kuala_Lumpur')).replace(day=1) - timedelta(days=1):%Y-%m}-15T12:00:00+08:00"


async def posted(api, path, **body):
    """The `data` of the answer to a creation."""
    status, answer = await answered(api, "POST", path, json=body)
    assert status == 201, answer
    return answer["data"]


async def sale(api):
    """The id of an invoice of last month that may be consolidated."""
    lines = [line(taxDetails=[{"taxType": "06", "taxRate": {"percentage": 0}}])]
    return await created(
        api, issueDateTime=last_month(), buyer={"type": "GENERAL_PUBLIC"}, lineItems=lines
    )


async def one_of_each(api):
    """{place: id} of a new record of every resource; the service has to be a generous one."""
    id = await valid_invoice(api)
    family = {
        "type": "CONSOLIDATED_INVOICE",
        "code": next(_codes),
        "issueDateTime": now(),
        "invoiceIds": [await sale(api)],
    }
    asked = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah binti Salleh"}
    made = {
        "/api/adjustment-notes": await posted(api, f"/api/invoices/{id}/adjustment-note", **note()),
        "/api/consolidated-invoices": await posted(api, "/api/consolidated-invoices", **family),
        "/api/einvoice-requests": await posted(api, "/api/einvoice-requests", **asked),
        "/api/webhooks": await posted(api, "/api/webhooks", url="http://127.0.0.1:9/"),
    }
    return {"/api/invoices": id, **{place: data["id"] for place, data in made.items()}}


async def a_delivery(api, webhook):
    """The id of a delivery to a webhook, of what happened now."""
    path = f"/api/webhooks/{webhook}/deliveries"
    await created(api)
    _, body = await until(lambda: answered(api, "GET", path), lambda answer: answer[1]["data"])
    return body["data"][0]["id"]


async def swept_and_settled(owner):
    """Rows of what happens when all else has failed, for the first submission that there is."""
    for insert in (
        "into sweeps (company_id, swept_at) select company_id, now()",
        "into sending_holds (company_id, reason, released_at) select company_id, 'A restore.', now()",
        "into sweep_findings (company_id, kind, tin, number, uuid, resolved_at, resolved_by) select company_id, 'orphan', tin, 'X', 'X', now(), 'sweep'",
        "into reconciliations (company_id) select company_id",
        "into portal_odd_rows (company_id, row_key, operation, tin, problems, shown) select company_id, 'X', 'search', tin, 'X', 'X'",
        "into settlements (company_id, submission_id, outcome, uuids, note) select company_id, id, 'not_received', '{}', 'X'",
    ):
        await owner.execute(f"insert {insert} from submissions order by id limit 1")


async def organized(environment, account, *companies):
    """The id of an organization of an account, which no request can make."""
    async with connected_pool(environment["DATABASE_URL"], 2) as pool:
        return (await insert_organization(Database(pool), account, "Penang Branch", companies))[
            "id"
        ]


async def one_of_each_integration(api, environment, account, *companies):
    """{place: id} of a new user and organization of an account, the one a member of the other."""
    person = {
        "name": "Nurul Huda",
        "email": f"{secrets.token_hex(6)}@example.com",
        "role": "member",
    }
    status, user = await answered(api, "POST", f"{INTEGRATIONS}users", json=person)
    assert status == 201, user
    organization = await organized(environment, account, *companies)
    body = {"members": [{"userId": user["id"]}]}
    assert (await answered(api, "PUT", f"{INTEGRATIONS}organizations/{organization}", json=body))[
        0
    ] == 200
    return {f"{INTEGRATIONS}users": user["id"], f"{INTEGRATIONS}organizations": organization}
