"""The main use case against the running service: one invoice from creation to cancellation."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from service import json_codec, schema
from service.commands.banner import local_address
from service.commands.command_line import CommandLine, add_company_option
from service.commands.companies import add_key, revoke_key
from service.commands.operator_errors import OperatorError
from service.commands.serve import find_demo_company
from service.config import Config
from service.db.transactions import Database
from service.json_types import Json, JsonObject

KEY_LIFE = timedelta(hours=1)
ANSWER_SECONDS = 60  # For one request; a submit waits for the portal.
VALID_SECONDS = 90  # For the portal's validation.
POLL_SECONDS = 0.5
SHORT = 300  # characters that are shown of a response

NOT_RUNNING = (
    "No service answers at {base} ({why}). "
    "Start it with `make run`, or set HOST and PORT to its address."
)
NO_COMPANY = "There is no demo company. Start the service once, or use --company ID."
LEGAL = (
    "PORTAL_API_BASE is set, so the demo could submit a legal document. "
    "If the portal is a test environment, use --company ID."
)
OTHER_DATABASE = (
    "The service at {base} does not know the demo's key: it runs on another database. "
    "Use its values of DATABASE_URL and DATA_DIR."
)

SALE = schema.EXAMPLES["invoice_create"]["A sale to a person"]
RETURN = schema.EXAMPLES["adjustment_note_create"]["One bag came back"]
#: The members that are shown of responses that have any of them.
SHOWN = {
    "data",
    "id",
    "invoice_code",
    "type",
    "status",
    "final_adjusted_amount",
    "uuid",
    "validated_at",
    "cancellable_until",
    "validation_link",
    "errors",
    "invoiceCodeWithPrefixAndDigits",
    "invoiceDateTime",
    "lineItems",
    "description",
}


def register(line: CommandLine) -> None:
    """Add the command."""
    parser = line.add(
        "demo",
        demo,
        "Walk through the main use case against the running service, with a key of its own.",
    )
    add_company_option(parser, "a company other than the demo company", required=False)


async def demo(config: Config, database: Database, company_id: int | None = None) -> None:
    """Print every step. Raises OperatorError."""
    base = local_address(config)
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(ANSWER_SECONDS), json_serialize=json_codec.dumps
    ) as session:
        await _check_service(session, base)
        until = datetime.now(UTC) + KEY_LIFE
        owner = company_id or await _demo_company(config, database)
        key = await add_key(config, database, owner, "demo", until.isoformat())
        try:
            print(f"A key of company {owner}, until {until:%H:%M} UTC: {key['key'][:22]}…")
            await _walk(Api(session, base, key["key"]))
        finally:
            await revoke_key(config, database, key["key_id"])
    print("\nAll steps succeeded. The key is revoked.")


async def _check_service(session: aiohttp.ClientSession, base: str) -> None:
    """Raise OperatorError if no service answers."""
    try:
        async with session.get(f"{base}/healthz") as response:
            if response.status == 200:
                return
            why = f"status {response.status}"
    except (aiohttp.ClientError, OSError) as error:  # A TimeoutError is an OSError.
        why = type(error).__name__
    raise OperatorError(NOT_RUNNING.format(base=base, why=why))


async def _demo_company(config: Config, database: Database) -> int:
    """Return the id of the demo company. Raises OperatorError."""
    if config.has_live_portal:
        raise OperatorError(LEGAL)
    async with database.across() as conn:
        company_id = await find_demo_company(conn)
    if company_id is None:
        raise OperatorError(NO_COMPANY)
    return company_id


@dataclass(frozen=True, slots=True)
class Api:
    """Sends requests with the demo's key, and prints each with its response."""

    session: aiohttp.ClientSession
    base: str
    key: str

    async def step(
        self,
        title: str,
        request: str,
        body: JsonObject | None = None,
        holds: Callable[[JsonObject], bool] = lambda _: True,
    ) -> Any:
        """Send a request such as "GET /readyz", print and return its response.

        It is repeated until `holds` accepts the response. Raises OperatorError for an error.
        """
        print(f"\n{title}\n  {request}")
        method, path = request.split(" ", 1)
        end = time.monotonic() + VALID_SECONDS
        while True:
            status, answer = await self._ask(method, path, body)
            is_over = status >= 300 or holds(answer) or _is_final(answer)
            if is_over or time.monotonic() > end:
                break
            await asyncio.sleep(POLL_SECONDS)
        print(f"  {status} {_short(_pick(answer))}")
        if status == 401:
            raise OperatorError(OTHER_DATABASE.format(base=self.base))
        if status >= 300:
            raise OperatorError(f"{request} failed with status {status}.")
        if not holds(answer):
            raise OperatorError(f"{request} did not have the expected result.")
        return answer

    async def _ask(self, method: str, path: str, body: JsonObject | None) -> tuple[int, Any]:
        """Return the status and the JSON of a response. Raises OperatorError without one.

        A page of the portal is a whole address. It gets no key, and has no JSON.
        """
        is_page = path.startswith("http")
        url, headers = (path, {}) if is_page else (f"{self.base}{path}", {"X-API-Key": self.key})
        try:
            async with self.session.request(method, url, json=body, headers=headers) as response:
                text = await response.read()
                return response.status, "" if is_page else json_codec.loads(text)
        except (aiohttp.ClientError, OSError, json_codec.NotJson) as error:
            raise OperatorError(
                f"{method} {path} got no response ({type(error).__name__})."
            ) from None


async def _walk(api: Api) -> None:
    # Unused: the time in tenths of seconds, which has at most twelve digits.
    code, now = time.time_ns() // 10**8, datetime.now(UTC).isoformat(timespec="seconds")
    sale = {**SALE, "code": code, "issueDateTime": now}
    note = {**RETURN, "adjustmentNoteCode": code, "adjustmentNoteIssueDate": now}
    step = api.step
    created = await step("Create an invoice", "POST /api/invoices", sale)
    path = f"/api/invoices/{created['data']['id']}"
    await step("Submit it to the portal", f"POST {path}/submit-to-portal", {})
    await step("Wait until the portal has validated it", f"GET {path}", holds=_has_status("Valid"))
    documents = await step("Show the submitted document", f"GET {path}/submitted-documents")
    await step("Open its page at the portal", f"GET {documents[0]['validation_link']}")
    listed = f"GET /api/invoices?status=Valid&query={code}"
    await step("Find it in the list", listed, holds=lambda page: page["meta"]["total"] == 1)
    exported = f"GET {path}/export"
    await step("Export it", exported, holds=lambda found: found["invoiceCode"] == str(code))
    await step("Create a credit note against it", f"POST {path}/adjustment-note", note)
    await step(
        "Cancel the invoice (a draft note does not prevent it)",
        f"POST {path}/cancel-latest-invoice-submitted",
        {"reason": "The demo is over"},
    )
    await step("Show it again", f"GET {path}", holds=_has_status("Cancelled"))


def _has_status(status: str) -> Callable[[JsonObject], bool]:
    return lambda record: record["status"] == status


def _is_final(answer: object) -> bool:
    """Return whether a record does not change by itself."""
    return isinstance(answer, dict) and answer.get("status") not in ("Submitting", "Submitted")


def _pick(found: Json) -> Json:
    """Return the shown members of a response, or all if it has none."""
    if isinstance(found, list):
        return [_pick(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {name: _pick(value) for name, value in found.items() if name in SHOWN} or found


def _short(answer: object) -> str:
    text = json_codec.dumps(answer)
    return text if len(text) <= SHORT else f"{text[:SHORT]}… ({len(text)} characters)"
