"""The main use case against the running service: one invoice from creation to cancellation."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from service import json_codec
from service.commands import companies
from service.commands.banner import local_address
from service.commands.bootstrap import run
from service.commands.command_line import CommandLine
from service.commands.companies import CommandError
from service.commands.running import read_running_config
from service.config import Config

KEY_LIFE = timedelta(hours=1)
ANSWER_SECONDS = 60  # For one request; a submit waits for the portal.
VALID_SECONDS = 90  # For the portal's validation.
POLL_SECONDS = 0.5

NOT_RUNNING = (
    "No service answers at {base} ({why}). "
    "Start it with `make run`, or set HOST and PORT to its address."
)
NO_COMPANY = (
    "There is no demo company in {data_dir}. "
    "Start the service once with the same DATA_DIR, or use --company ID."
)
LEGAL = (
    "PORTAL_API_BASE is set, so the demo could submit a legal document. "
    "If the portal is a test environment, use --company ID."
)
OTHER_DATABASE = (
    "The service at {base} does not know the demo's key: it runs on another database. "
    "Use its values of DATABASE_URL and DATA_DIR."
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


def register(line: CommandLine) -> None:
    """Add the command."""
    parser = line.add(
        "demo",
        _run_demo,
        "Walk through the main use case against the running service, with a key of its own.",
    )
    parser.add_argument(
        "--company", type=int, metavar="ID", help="a company other than the demo company"
    )


def _run_demo(options: argparse.Namespace) -> None:
    sys.exit(run(demo(read_running_config(), options.company)))


def _members(*names: str) -> Callable[[Any], Any]:
    """Return a function that picks members of a record, or of each record of a list."""

    def pick(found: Any) -> Any:
        if isinstance(found, list):
            return [pick(one) for one in found]
        return {name: found.get(name) for name in names}

    return pick


def _whole(answer: Any) -> Any:
    return answer


#: The members that are shown of long responses.
RECORD = _members("id", "invoice_code", "type", "status", "final_adjusted_amount")
DOCUMENT = _members(
    "id", "status", "uuid", "validated_at", "cancellable_until", "validation_link", "errors"
)
EXPORT = _members("invoiceCodeWithPrefixAndDigits", "invoiceDateTime", "lineItems")


async def demo(config: Config, company_id: int | None = None) -> int:
    """Print every step and return the exit code, 1 after an error."""
    try:
        await _demo(config, company_id)
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _demo(config: Config, company_id: int | None) -> None:
    base = local_address(config)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_SECONDS)) as session:
        await _check_service(session, base)
        until = datetime.now(UTC) + KEY_LIFE
        owner = company_id or _demo_company(config)
        key = await companies.add_key(config, owner, "demo", until.isoformat())
        try:
            print(f"A key of company {owner}, until {until:%H:%M} UTC: {key['key'][:22]}…")
            await _walk(Api(session, base, key["key"]))
        finally:
            await companies.revoke_key(config, key["key_id"])
    print("\nAll steps succeeded. The key is revoked.")


async def _check_service(session: aiohttp.ClientSession, base: str) -> None:
    """Raise CommandError if no service answers."""
    try:
        async with session.get(f"{base}/healthz") as response:
            if response.status == 200:
                return
            why = f"status {response.status}"
    except (aiohttp.ClientError, OSError) as error:  # A TimeoutError is an OSError.
        why = type(error).__name__
    raise CommandError(NOT_RUNNING.format(base=base, why=why))


def _demo_company(config: Config) -> int:
    """Return the id of the demo company. Raises CommandError."""
    if config.portal_api_base:
        raise CommandError(LEGAL)
    try:
        return json_codec.loads((config.data_dir / "demo-company.json").read_bytes())["id"]
    except (OSError, json_codec.NotJson, KeyError):
        raise CommandError(NO_COMPANY.format(data_dir=config.data_dir)) from None


class Api:
    """Sends requests with the demo's key, and prints each with its response."""

    def __init__(self, session: aiohttp.ClientSession, base: str, key: str) -> None:
        self._session = session
        self._base = base
        self._headers = {"X-API-Key": key}

    async def step(
        self,
        title: str,
        request: str,
        body: dict[str, Any] | None = None,
        show: Callable[[Any], Any] = _whole,
    ) -> Any:
        """Send a request such as "GET /readyz", print what `show` picks, and return the JSON.

        Raises CommandError for an error.
        """
        print(f"\n{title}\n  {request}")
        method, path = request.split(" ", 1)
        status, answer = await self.ask(method, path, body)
        print(f"  {status} {_short(show(answer) if status < 300 else answer)}")
        if status == 401:
            raise CommandError(OTHER_DATABASE.format(base=self._base))
        _expect(status < 300, f"{request} failed with status {status}.")
        return answer

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of a response. Raises CommandError without one."""
        url = f"{self._base}{path}"
        try:
            async with self._session.request(
                method, url, json=body, headers=self._headers
            ) as response:
                return response.status, json_codec.loads(await response.read())
        except (aiohttp.ClientError, OSError, json_codec.NotJson) as error:
            raise CommandError(
                f"{method} {path} got no response ({type(error).__name__})."
            ) from None

    async def open(self, link: str) -> int | str:
        """Return the status of a page of the portal, or the name of the error."""
        try:
            async with self._session.get(link) as response:
                return response.status
        except (aiohttp.ClientError, OSError) as error:
            return type(error).__name__


async def _walk(api: Api) -> None:
    code, now = _code(), datetime.now(UTC).isoformat(timespec="seconds")
    body = {
        "type": "INVOICE",
        "code": code,
        "issueDateTime": now,
        "buyer": BUYER,
        "lineItems": [LINE],
    }
    created = await api.step("Create an invoice", "POST /api/invoices", body)
    path = f"/api/invoices/{created['data']['id']}"
    await api.step("Submit it to the portal", f"POST {path}/submit-to-portal", {})
    await _wait_until_valid(api, path)
    await _show_listed(api, code)
    await _show_export(api, path, code)
    note = {
        "targetInvoiceType": "INVOICE",
        "type": "CREDIT_NOTE",
        "adjustmentNoteCode": code,
        "adjustmentNoteIssueDate": now,
        "lineItems": [{**LINE, "unit": {**LINE["unit"], "count": 1}}],
    }
    await api.step("Create a credit note against it", f"POST {path}/adjustment-note", note)
    await api.step(
        "Cancel the invoice (a draft note does not prevent it)",
        f"POST {path}/cancel-latest-invoice-submitted",
        {"reason": "The demo is over"},
    )
    record = await api.step("Show it again", f"GET {path}", show=RECORD)
    _expect(
        record["status"] == "Cancelled",
        f"The invoice is {record['status']}; expected Cancelled.",
    )


async def _wait_until_valid(api: Api, path: str) -> None:
    """Wait for the portal's validation, then open the validation link."""
    end = time.monotonic() + VALID_SECONDS
    print(f"\nWait until the portal has validated it\n  GET {path}")
    status = None
    while status not in ("Valid", "Invalid", "Draft", "Cancelled"):
        _expect(
            time.monotonic() < end, f"The invoice is still {status} after {VALID_SECONDS} seconds."
        )
        await asyncio.sleep(POLL_SECONDS if status else 0)
        code, record = await api.ask("GET", path)
        _expect(code == 200, f"GET {path} failed with status {code}.")
        if record["status"] != status:
            status = record["status"]
            print(f"  {code} {status}")
    rows = await api.step(
        "Show the submitted document", f"GET {path}/submitted-documents", show=DOCUMENT
    )
    latest = rows[0]
    _expect(
        status == "Valid", f"The invoice is {status}; expected Valid: {_short(latest['errors'])}"
    )
    print(f"\nOpen its page at the portal\n  GET {latest['validation_link']}")
    page = await api.open(latest["validation_link"])
    print(f"  {page}")
    _expect(page == 200, f"The validation link failed with {page}.")


async def _show_listed(api: Api, code: int) -> None:
    listed = await api.step(
        "Find it in the list of valid invoices",
        f"GET /api/invoices?status=Valid&query={code}",
        show=lambda page: RECORD(page["data"]),
    )
    total = listed["meta"]["total"]
    _expect(total == 1, f"The list has {total} invoices of code {code}; expected 1.")


async def _show_export(api: Api, path: str, code: int) -> None:
    export = await api.step("Export it", f"GET {path}/export", show=EXPORT)
    exported = export["invoiceCode"]
    _expect(exported == str(code), f"The export has the code {exported}; expected {code}.")


def _expect(condition: bool, message: str) -> None:
    """Raise CommandError with the message unless the condition holds."""
    if not condition:
        raise CommandError(message)


def _code() -> int:
    """Return an unused code: the time in tenths of seconds, which has at most twelve digits."""
    return time.time_ns() // 10**8


def _short(answer: Any, most: int = 300) -> str:
    text = json_codec.dumps(answer)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
