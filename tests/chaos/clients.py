"""Clients that write and submit documents, and record which effects were acknowledged.

A request without a response, or with a 503, may take effect, now or later: a process that was
paused completes the request when it continues.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from tests.documents.sources import MILL
from tests.harness.bodies import buyer, last_month, line, now
from tests.harness.waiting import patience

from .counters import Counters

TIMEOUT = aiohttp.ClientTimeout(total=7)
PAUSE = 0.1  # seconds until a request is repeated
CONNECT_SECONDS = 20  # in which one of the processes must accept a connection
#: Shares of the requests with an Idempotency-Key that are sent three times at once, and of those
#: that are sent again after the response.
AT_ONCE, AGAIN = 0.15, 0.2
#: Statuses after which the request may have taken effect; None: there was no response.
UNKNOWN = {None, 503}
#: Statuses after which a request with an Idempotency-Key is repeated. 409: another one is running.
UNFINISHED = {*UNKNOWN, 409}
REPEATED = 100  # times at most, in which each key of a killed process is released
NOTE_TYPES = ("CREDIT_NOTE", "DEBIT_NOTE", "REFUND_NOTE")
#: Type of an invoice -> type of the consolidated invoice that may contain it.
CONSOLIDATED_TYPES = {
    "INVOICE": "CONSOLIDATED_INVOICE",
    "SELF_BILLED_INVOICE": "CONSOLIDATED_SELF_BILLED_INVOICE",
}

Body = dict[str, Any]
Company = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record: its name, the path of its list, the subject of its events.

    `cancel` is the suffix of the cancellation path.
    """

    name: str
    path: str
    subject: str
    cancel: str = "cancel-latest-invoice-submitted"


INVOICE = Kind("invoice", "/api/invoices", "invoice")
NOTE = Kind(
    "note", "/api/adjustment-notes", "adjustment_note", "cancel-latest-adjustment-note-submitted"
)
CONSOLIDATED = Kind("consolidated", "/api/consolidated-invoices", "consolidated_invoice")
REQUEST = Kind("request", "/api/einvoice-requests", "einvoice_request")
KINDS = (INVOICE, NOTE, CONSOLIDATED, REQUEST)


@dataclass
class Record:
    """A record that a client created, and the acknowledged effects."""

    company: int
    code: int
    id: int | None = None  # None: its creation was not acknowledged
    # Last acknowledged description of its first line; None: the service creates the lines.
    text: str | None = ""
    # Descriptions sent by updates without a response.
    possible: set[str] = field(default_factory=set)
    is_deleted: bool = False
    may_be_deleted: bool = False
    is_submitted: bool = False
    cancels: int = 0
    may_be_cancelled: bool = False
    updates: int = 0
    possible_updates: int = 0  # requests without a response
    seen_statuses: set[str] = field(default_factory=set)
    history: list[str] = field(default_factory=list)  # requests with the status of the response
    kind: Kind = INVOICE
    type: str = "INVOICE"

    @property
    def acknowledged(self) -> int:
        changed = self.text is not None and " v0" not in self.text
        return (self.id is not None) + self.is_deleted + self.is_submitted + self.cancels + changed

    @property
    def path(self) -> str:
        return f"{self.kind.path}/{self.id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response to a request with an Idempotency-Key. There is no status without a response."""

    status: int | None
    is_replayed: bool
    body: Any


@dataclass
class KeyedRequest:
    """A POST with an Idempotency-Key, and the responses to it and its repetitions.

    `creates` is the kind of the record that it creates, with the code, or None.
    """

    company: int
    key: str
    path: str
    body: Body
    creates: str | None = None
    code: str = ""
    answers: list[Answer] = field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """Return whether a repetition would receive the same response."""
        return any(answer.status not in UNFINISHED for answer in self.answers)

    @property
    def has_interim(self) -> bool:
        """Return whether its response is stored with the creation, and again with the outcome."""
        return bool({"submitImmediately", "isReady"} & self.body.keys())


class Clients:
    """Writers that send requests to all processes.

    `companies` are {id, key, automatic}, `bases` are the addresses of the processes. With
    `promised`, clients request only submissions that the service promises to complete, and none
    twice.
    """

    def __init__(
        self,
        bases: list[str],
        companies: list[Company],
        random: Random,
        counters: Counters,
        promised: bool = False,
    ) -> None:
        self.records: list[Record] = []
        self.keyed: list[KeyedRequest] = []
        self.stopping = asyncio.Event()
        self._bases, self._companies = bases, companies
        self._random, self._counters, self._promised = random, counters, promised
        self._codes = itertools.count(1)

    async def run(self, writers: int, pause: float) -> None:
        """Run writers until `stopping` is set.

        `pause` is the mean pause between two scenes of a writer in seconds.
        """
        async with self._open_session(), asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(self._play_scenes(pause))

    async def measure(self, writers: int) -> float:
        """Return the seconds until documents that all writers submit at once are Valid."""
        async with self._open_session():
            began = time.monotonic()
            await asyncio.gather(*[self._submit_until_valid() for _ in range(writers)])
            return time.monotonic() - began

    async def _submit_until_valid(self) -> None:
        record = await self._create_invoice(submitImmediately=True)
        async with patience():
            while record and not await self._is_valid(record):
                await asyncio.sleep(PAUSE)

    async def _is_valid(self, record: Record) -> bool:
        answer = await self._send_for(record, "GET")
        return answer.status == 200 and answer.body["status"] == "Valid"

    async def repeat_unanswered(self, writers: int) -> None:
        """Repeat the creations without a final response, some of them long after a kill."""
        left = [each for each in self.keyed if each.creates is not None and not each.is_final]
        async with self._open_session(), asyncio.TaskGroup() as group:
            for writer in range(writers):
                group.create_task(self._repeat(left[writer::writers]))

    async def _repeat(self, requests: Sequence[KeyedRequest]) -> None:
        for request in requests:
            for _ in range(REPEATED):
                await self._send_once(request)
                if request.is_final:
                    break
                await asyncio.sleep(PAUSE)

    @asynccontextmanager
    async def _open_session(self) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(
            connector=connector, middlewares=[prevent_repetition]
        ) as self._session:
            yield

    async def _play_scenes(self, pause: float) -> None:
        while not self.stopping.is_set():
            await self._random.choice(PROMISED_SCENES if self._promised else SCENES)(self)
            await asyncio.sleep(pause * self._random.random() * 2)

    # Scenes.

    async def play_submit_immediately(self) -> None:
        if record := await self._create_invoice(submitImmediately=True):
            await self._continue(record)

    async def play_automatic_submission(self) -> None:
        if record := await self._create_invoice(automatic=True, isReady=True):
            await self._continue(record)

    async def play_submit_later(self) -> None:
        if record := await self._create_invoice():
            await self._submit_until_acknowledged(record)
            await self._continue(record)

    async def play_concurrent_submits(self) -> None:
        if record := await self._create_invoice():
            await asyncio.gather(*[self._submit(record) for _ in range(4)])
            await self._continue(record)

    async def play_draft(self) -> None:
        if record := await self._create_invoice():
            await self._change(record)
            if self._random.random() < 0.5:
                await self._delete(record)

    async def play_note(self) -> None:
        """Submit an invoice, and a note against it once it is Valid."""
        invoice = await self._create_invoice()
        if invoice is None:
            return
        await self._submit_until_acknowledged(invoice)
        if not await self._becomes_valid(invoice):
            return
        await self._create_and_submit_note(invoice)

    async def play_note_during_cancellation(self) -> None:
        """Cancel an invoice and submit a note against it concurrently; one must wait or fail."""
        invoice = await self._create_invoice()
        if invoice is None:
            return
        await self._submit_until_acknowledged(invoice)
        if await self._becomes_valid(invoice):
            await asyncio.gather(self._cancel(invoice), self._create_and_submit_note(invoice))

    async def play_consolidated_invoice(self) -> None:
        """Consolidate two sales of last month and submit the result, sometimes with a note."""
        sale_type = self._random.choice(list(CONSOLIDATED_TYPES))
        company = self._pick_company()
        sales = [await self._create_sale(company, sale_type) for _ in range(2)]
        ids = [sale.id for sale in sales if sale is not None]
        if not ids:
            return
        record = Record(
            company["id"],
            next(self._codes),
            text=None,
            kind=CONSOLIDATED,
            type=CONSOLIDATED_TYPES[sale_type],
        )
        body = {
            "type": record.type,
            "code": record.code,
            "issueDateTime": now(),
            "invoiceIds": ids,
        }
        if not await self._create(record, CONSOLIDATED.path, body):
            return
        await self._submit_until_acknowledged(record)
        if self._random.random() < 0.3 and await self._becomes_valid(record):
            await self._create_and_submit_note(record, "004")
        await self._continue(record)

    async def play_buyer_request(self) -> None:
        """Create an e-invoice request, of which only the key prevents a second one."""
        code = next(self._codes)
        body = {"invoiceCode": str(code), "type": "LOCAL_INDIVIDUAL", "name": f"Buyer {code}"}
        request = self._make_creation(self._pick_company()["id"], REQUEST, code, REQUEST.path, body)
        for _ in range(4):
            if (await self._send_with_key(request)).status == 201:
                return
            await asyncio.sleep(PAUSE)

    async def _create_and_submit_note(self, target: Record, classification: str = "022") -> None:
        record = Record(
            target.company, next(self._codes), kind=NOTE, type=self._random.choice(NOTE_TYPES)
        )
        record.text = first_text(record)
        unit = {"code": "KGM", "price": 1, "count": 1}
        body = {
            "targetInvoiceType": target.type,
            "type": record.type,
            "adjustmentNoteCode": record.code,
            "adjustmentNoteIssueDate": now(),
            "lineItems": [
                line(description=record.text, unit=unit, classifications=[classification])
            ],
        }
        if await self._create(record, f"{target.path}/adjustment-note", body):
            await self._submit_until_acknowledged(record)
            await self._continue(record)

    async def _continue(self, record: Record) -> None:
        """Update, delete or cancel a record whose document was, or may have been, submitted."""
        await asyncio.sleep(self._random.random())
        chance = self._random.random()
        if chance < 0.15:
            await self._change_while_submitted(record)
        elif chance < 0.25:
            await self._delete(record)
        elif chance < 0.6:
            await self._cancel_until_acknowledged(record)
            if (
                self._random.random() < 0.5
                and not self._promised
                and record.kind is not CONSOLIDATED
            ):
                await self._submit_until_acknowledged(record)

    async def _change_while_submitted(self, record: Record) -> None:
        if record.kind is CONSOLIDATED:
            return
        if self._promised:
            await self._change(record)
        else:
            await asyncio.gather(self._change(record), self._submit(record))

    # Requests

    async def _create_invoice(self, automatic: bool = False, **more: Any) -> Record | None:
        record_type = self._random.choice(("INVOICE", "INVOICE", "SELF_BILLED_INVOICE"))
        return await self._create_invoice_of(self._pick_company(automatic), record_type, **more)

    async def _create_sale(self, company: Company, sale_type: str) -> Record | None:
        """Create an invoice of last month to the general public, which can be consolidated."""
        party = "buyer" if sale_type == "INVOICE" else "supplier"
        more = {"issueDateTime": last_month(), party: {"type": "GENERAL_PUBLIC"}}
        return await self._create_invoice_of(company, sale_type, **more)

    async def _create_invoice_of(
        self, company: Company, record_type: str, **more: Any
    ) -> Record | None:
        record = Record(company["id"], next(self._codes), type=record_type)
        record.text = first_text(record)
        body = invoice_body(record.code, record.text, record_type, **more)
        return await self._create(record, INVOICE.path, body)

    async def _create(self, record: Record, path: str, body: Body) -> Record | None:
        """Create the record with retries. Return it if the creation is acknowledged, else None."""
        text, record.text = record.text, "" if record.text is not None else None
        if text is not None:
            record.possible.add(text)
        self.records.append(record)
        request = self._make_creation(record.company, record.kind, record.code, path, body)
        for _ in range(4):
            answer = await self._send_with_key(request)
            if answer.status == 201:
                record.id, record.text = answer.body["data"]["id"], text
                record.possible = set()
                return record
            # The invoice of the note is being cancelled, or is not known.
            if answer.status in (403, 422):
                return None
            await asyncio.sleep(PAUSE)
        return None

    def _make_creation(
        self, company_id: int, kind: Kind, code: int, path: str, body: Body
    ) -> KeyedRequest:
        key = f"create-{kind.name}-{company_id}-{code}"
        request = KeyedRequest(company_id, key, path, body, kind.name, str(code))
        self.keyed.append(request)
        return request

    async def _send_with_key(self, request: KeyedRequest) -> Answer:
        """Send a POST with an Idempotency-Key, sometimes at once three times, or again.

        Return a success if there is one.
        """
        at_once = 3 if self._random.random() < AT_ONCE else 1
        answers = await asyncio.gather(*[self._send_once(request) for _ in range(at_once)])
        if self._random.random() < AGAIN:
            answers.append(await self._send_once(request))
        return next((each for each in answers if each.status in (200, 201)), answers[-1])

    async def _send_once(self, request: KeyedRequest) -> Answer:
        if request.answers:
            self._counters.count("repetitions with a key")
            if None in {answer.status for answer in request.answers}:
                self._counters.count("repetitions after no answer")
        headers = {"Idempotency-Key": request.key}
        answer = await self._send(request.company, "POST", request.path, request.body, headers)
        self._counters.count("answers replayed", answer.is_replayed)
        request.answers.append(answer)
        return answer

    async def _becomes_valid(self, record: Record) -> bool:
        """Wait until the record is Valid. Return False if it does not become Valid in time."""
        for _ in range(20):
            answer = await self._send_for(record, "GET")
            if answer.status == 200:
                record.seen_statuses.add(answer.body["status"])
                if answer.body["status"] not in ("Submitting", "Submitted"):
                    return answer.body["status"] == "Valid"
            await asyncio.sleep(2 * PAUSE)
        return False

    async def _submit_until_acknowledged(self, record: Record) -> None:
        for _ in range(5):
            if await self._submit(record) not in (*UNKNOWN, 400):
                return
            await asyncio.sleep(PAUSE)

    async def _submit(self, record: Record) -> int | None:
        answer = await self._act(record, "submit-to-portal", {})
        record.is_submitted |= answer.status == 200
        return answer.status

    async def _act(self, record: Record, action: str, body: Body) -> Answer:
        """Send a POST about a record with a key of its own, and again if it had no response."""
        key = f"{action}-{next(self._codes)}"
        request = KeyedRequest(record.company, key, f"{record.path}/{action}", body)
        self.keyed.append(request)
        answer = await self._send_with_key(request)
        if answer.status in UNKNOWN:
            answer = await self._send_with_key(request)
        statuses = [each.status for each in request.answers]
        record.history.append(f"POST/{action} {statuses}")
        record.may_be_cancelled |= action == record.kind.cancel and bool(
            {*UNKNOWN, 200, 400} & {*statuses}
        )
        return answer

    async def _cancel_until_acknowledged(self, record: Record) -> None:
        """Cancel the document. Refused until it is known that the portal has it."""
        for _ in range(8):
            if await self._cancel(record) not in (*UNKNOWN, 400, 409):
                return
            await asyncio.sleep(4 * PAUSE)

    async def _cancel(self, record: Record) -> int | None:
        answer = await self._act(record, record.kind.cancel, {"reason": "By mistake"})
        record.cancels += answer.status == 200
        return answer.status

    async def _change(self, record: Record) -> None:
        text = f"Coffee {record.company}-{record.code} v{self._random.randrange(1, 10**6)}"
        record.possible.add(text)
        items = [line(description=text)]
        if record.kind is NOTE:
            items[0]["unit"] = {"code": "KGM", "price": 1, "count": 1}
        status = (await self._send_for(record, "PUT", {"lineItems": items})).status
        record.possible_updates += status in UNKNOWN
        if status not in UNKNOWN:
            record.possible.discard(text)
        if status == 200:
            record.text = text
            record.updates += 1

    async def _delete(self, record: Record) -> None:
        status = (await self._send_for(record, "DELETE")).status
        record.is_deleted |= status == 200
        record.may_be_deleted |= status in UNKNOWN

    async def _send_for(self, record: Record, method: str, body: Body | None = None) -> Answer:
        answer = await self._send(record.company, method, record.path, body)
        if method != "GET":
            record.history.append(f"{method} {answer.status}")
        return answer

    async def _send(
        self,
        company_id: int,
        method: str,
        path: str,
        body: Body | None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request to one of the processes, and return its response."""
        self._counters.count("requests")
        key = next(each["key"] for each in self._companies if each["id"] == company_id)
        request = {
            "json": body,
            "headers": {"X-API-Key": key, **(headers or {})},
            "timeout": TIMEOUT,
        }
        try:
            async with await self._send_to_any(method, path, request) as response:
                answer = Answer(
                    response.status,
                    response.headers.get("Idempotent-Replayed") == "true",
                    await response.json(),
                )
        except (aiohttp.ClientError, TimeoutError):
            self._counters.count("requests without answer")
            return Answer(None, False, None)
        self._counters.count(f"answers {answer.status}")
        if answer.status == 500:
            self._counters.violate("answered 500", f"{method} {path} {answer.body}")
        return answer

    async def _send_to_any(
        self, method: str, path: str, request: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        """Send a request to the first process that accepts a connection.

        If none does, try again: on a busy machine both may be starting for a while. Raises the last
        error after CONNECT_SECONDS, or once the clients are stopping.
        """
        until = time.monotonic() + CONNECT_SECONDS
        while True:
            for base in self._random.sample(self._bases, len(self._bases)):
                try:
                    return await self._session.request(method, base + path, **request)
                except aiohttp.ClientConnectorError:
                    if self.stopping.is_set() or time.monotonic() >= until:
                        raise
            await asyncio.sleep(PAUSE)

    def _pick_company(self, automatic: bool = False) -> Company:
        return self._random.choice(
            [each for each in self._companies if each["automatic"] == automatic]
        )

    def count_created(self) -> int:
        return sum(each.id is not None for each in self.records)

    def count_acknowledged(self) -> dict[str, int]:
        """Return {effect: number of acknowledgements}, for submissions also by type of record."""
        totals = {
            "acknowledged effects": sum(each.acknowledged for each in self.records),
            "created": self.count_created(),
            "deleted": sum(each.is_deleted for each in self.records),
            "submitted": sum(each.is_submitted for each in self.records),
            "cancelled": sum(each.cancels for each in self.records),
        }
        for name in sorted({each.type for each in self.records}):
            submitted = [each.is_submitted for each in self.records if each.type == name]
            totals[f"submitted {name}"] = sum(submitted)
        return totals


#: Scenes of writers. A scene that is listed twice is played twice as often.
Scene = Callable[[Clients], Awaitable[None]]
SCENES: tuple[Scene, ...] = (
    *[Clients.play_submit_immediately] * 2,
    *[Clients.play_automatic_submission] * 3,
    *[Clients.play_submit_later] * 2,
    Clients.play_concurrent_submits,
    Clients.play_draft,
    Clients.play_buyer_request,
    *[Clients.play_note] * 2,
    Clients.play_note_during_cancellation,
    *[Clients.play_consolidated_invoice] * 2,
)
#: Scenes with promised submissions only. A submission that was reported as failed is released when
#: its document seems absent, which is wrong if the settling time is too short.
PROMISED_SCENES: tuple[Scene, ...] = (
    Clients.play_submit_immediately,
    *[Clients.play_automatic_submission] * 2,
    Clients.play_draft,
    Clients.play_buyer_request,
)


async def prevent_repetition(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Prevent aiohttp from repeating a PUT or DELETE after a broken connection.

    The response to the repetition is not the response to the first request.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # nothing was sent
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientError(str(error)) from error


def first_text(record: Record) -> str:
    """Return the description of the first line at the creation of a record."""
    return f"Coffee {record.company}-{record.code} v0"


def invoice_body(code: int, text: str, invoice_type: str = "INVOICE", **more: Any) -> Body:
    """Return the body of an invoice with one line."""
    is_self_billed = invoice_type == "SELF_BILLED_INVOICE"
    parties = {"supplier": MILL} if is_self_billed else {"buyer": buyer()}
    return {
        "type": invoice_type,
        "code": code,
        "issueDateTime": now(),
        **parties,
        "lineItems": [line(description=text)],
        **more,
    }
