"""The main job, step by step against the running service: one invoice from its creation to its cancellation."""

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta

import aiohttp

from service import json_codec
from service.commands import companies
from service.commands.companies import CommandError

KEY_LIFE = timedelta(hours=1)
ANSWER_SECONDS = 60  # for one request; a submit waits for the portal
VALID_SECONDS = 90  # for the portal's validation
LOOK_SECONDS = 0.5

NOT_RUNNING = "No service answers at {base} ({why}): start it with `make run`, or set HOST and PORT to where it runs."
NO_COMPANY = "There is no demo company in {data_dir}: start the service once with the same DATA_DIR, or say --company ID."
LEGAL = (
    "PORTAL_API_BASE is set: what the demo submits could be a legal document there. "
    "Where the portal is one for trials, say --company ID."
)
OTHER_DATABASE = (
    "The service at {base} does not know the demo's key: it runs on another database. "
    "Set DATABASE_URL and DATA_DIR as they are set for it."
)

LINE = {
    "id": "1",
    "description": "Coffee beans, 1 kg",
    "classifications": ["022"],
    "unit": {"code": "KGM", "price": 48.5, "count": 2},
    "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
    "originCountry": "MYS",
}
BUYER = {
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


def _members(*names):
    """Picks members of a record, or of each record of a list."""

    def pick(found):
        return (
            [pick(one) for one in found]
            if isinstance(found, list)
            else {name: found.get(name) for name in names}
        )

    return pick


#: What is shown of an answer that is long.
RECORD = _members("id", "invoice_code", "type", "status", "final_adjusted_amount")
DOCUMENT = _members(
    "id", "status", "uuid", "validated_at", "cancellable_until", "validation_link", "errors"
)
EXPORT = _members("invoiceCodeWithPrefixAndDigits", "invoiceDateTime", "lineItems")


async def demo(config, company=None):
    """Walks and prints every step. Returns the exit code: 1, with a line that says why, where it had to stop."""
    try:
        await _demo(config, company)
    except CommandError as why:
        print(why, file=sys.stderr)
        return 1
    return 0


async def _demo(config, company):
    base = f"http://{'127.0.0.1' if config.host == '0.0.0.0' else config.host}:{config.port}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_SECONDS)) as session:
        await _refuse_without_service(session, base)
        until = datetime.now(UTC) + KEY_LIFE
        key = await companies.add_key(
            config, company or _demo_company(config), "demo", until.isoformat()
        )
        try:
            print(
                f"A key of company {key['company_id']}, until {until:%H:%M} UTC: {key['key'][:22]}…"
            )
            await _walk(Api(session, base, key["key"]))
        finally:
            await companies.revoke_key(config, key["key_id"])
    print("\nAll steps went as expected; the key is revoked.")


async def _refuse_without_service(session, base):
    try:
        async with session.get(f"{base}/healthz") as response:
            if response.status == 200:
                return
            why = f"status {response.status}"
    except (aiohttp.ClientError, OSError) as fault:  # a TimeoutError is an OSError
        why = type(fault).__name__
    raise CommandError(NOT_RUNNING.format(base=base, why=why))


def _demo_company(config):
    """The id of the company that the service made for itself at its first start with the sandbox."""
    if config.portal_api_base:
        raise CommandError(LEGAL)
    try:
        return json_codec.loads((config.data_dir / "demo-company.json").read_bytes())["id"]
    except (OSError, json_codec.NotJson, KeyError):
        raise CommandError(NO_COMPANY.format(data_dir=config.data_dir)) from None


class Api:
    """Requests with the demo's key; each prints what was asked and what came."""

    def __init__(self, session, base, key):
        self._session = session
        self._base = base
        self._headers = {"X-API-Key": key}

    async def step(self, does, method, path, body=None, expected=200, sees=lambda answer: answer):
        """The JSON of an answer with the expected status, of which it prints what `sees` picks.

        Raises CommandError for any other.
        """
        print(f"\n{does}\n  {method} {path}")
        status, answer = await self.ask(method, path, body)
        print(f"  {status} {_short(sees(answer) if status == expected else answer)}")
        if status == 401:
            raise CommandError(OTHER_DATABASE.format(base=self._base))
        if status != expected:
            raise CommandError(f"{method} {path} answered {status}, and {expected} was expected.")
        return answer

    async def ask(self, method, path, body=None):
        """(status, JSON). Raises CommandError when there is none to be had."""
        url = f"{self._base}{path}"
        try:
            async with self._session.request(
                method, url, json=body, headers=self._headers
            ) as response:
                return response.status, json_codec.loads(await response.read())
        except (aiohttp.ClientError, OSError, json_codec.NotJson) as fault:
            raise CommandError(f"{method} {path} got no answer ({type(fault).__name__}).") from None

    async def open(self, link):
        """The status of a page outside of the service."""
        try:
            async with self._session.get(link) as response:
                return response.status
        except (aiohttp.ClientError, OSError) as fault:
            return type(fault).__name__


async def _walk(api):
    code, now = _code(), datetime.now(UTC).isoformat(timespec="seconds")
    body = {
        "type": "INVOICE",
        "code": code,
        "issueDateTime": now,
        "buyer": BUYER,
        "lineItems": [LINE],
    }
    created = await api.step("Create an invoice", "POST", "/api/invoices", body, expected=201)
    path = f"/api/invoices/{created['data']['id']}"
    await api.step("Submit it to the portal", "POST", f"{path}/submit-to-portal", {})
    await _see_valid(api, path)
    await _see_listed(api, code)
    await _see_export(api, path, code)
    note = {
        "targetInvoiceType": "INVOICE",
        "type": "CREDIT_NOTE",
        "adjustmentNoteCode": code,
        "adjustmentNoteIssueDate": now,
        "lineItems": [{**LINE, "unit": {**LINE["unit"], "count": 1}}],
    }
    await api.step(
        "Create a credit note against it", "POST", f"{path}/adjustment-note", note, expected=201
    )
    cancel, reason = f"{path}/cancel-latest-invoice-submitted", {"reason": "The demo is over"}
    await api.step(
        "Cancel the invoice, which a note that is only a draft does not hinder",
        "POST",
        cancel,
        reason,
    )
    record = await api.step("Look at it once more", "GET", path, sees=RECORD)
    _expect(
        record["status"] == "Cancelled",
        f"The invoice is {record['status']}, and Cancelled was expected.",
    )


async def _see_valid(api, path):
    """Waits for the portal's validation, then opens the link that it gave."""
    end = time.monotonic() + VALID_SECONDS
    print(f"\nWait until the portal has validated it\n  GET {path}")
    status = None
    while status not in ("Valid", "Invalid", "Draft", "Cancelled"):
        _expect(
            time.monotonic() < end, f"The invoice is still {status} after {VALID_SECONDS} seconds."
        )
        await asyncio.sleep(LOOK_SECONDS if status else 0)
        code, record = await api.ask("GET", path)
        _expect(code == 200, f"GET {path} answered {code}, and 200 was expected.")
        if record["status"] != status:
            status = record["status"]
            print(f"  {code} {status}")
    rows = await api.step(
        "Read what was submitted", "GET", f"{path}/submitted-documents", sees=DOCUMENT
    )
    latest = rows[0]
    _expect(
        status == "Valid",
        f"The invoice is {status}, and Valid was expected: {_short(latest['errors'])}",
    )
    print(f"\nOpen its page at the portal\n  GET {latest['validation_link']}")
    page = await api.open(latest["validation_link"])
    print(f"  {page}")
    _expect(page == 200, f"The validation link answered {page}, and 200 was expected.")


async def _see_listed(api, code):
    path = f"/api/invoices?status=Valid&query={code}"
    listed = await api.step(
        "Find it among the valid ones", "GET", path, sees=lambda page: RECORD(page["data"])
    )
    _expect(
        listed["meta"]["total"] == 1,
        f"The list has {listed['meta']['total']} invoices of code {code}, not one.",
    )


async def _see_export(api, path, code):
    export = await api.step("Export it", "GET", f"{path}/export", sees=EXPORT)
    _expect(
        export["invoiceCode"] == str(code),
        f"The export names the code {export['invoiceCode']}, not {code}.",
    )


def _expect(holds, otherwise):
    if not holds:
        raise CommandError(otherwise)


def _code():
    """A code that no demo used before: tenths of seconds, which fit the twelve digits for a thousand years."""
    return time.time_ns() // 10**8


def _short(answer, most=300):
    text = json_codec.dumps(answer)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
