"""Clients that create, change, delete, submit and cancel, and remember what they were told has been done.

What got no answer, or a 503, may be done, now or later: a process that was paused finishes what it began.
"""

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import aiohttp

PATIENCE = aiohttp.ClientTimeout(total=7)
PAUSE = 0.1  # seconds before something is tried again
#: What no answer at all counts as, beside an answer that promises nothing.
UNKNOWN = {None, 503}


@dataclass
class Invoice:
    """What one client knows of its invoice."""

    company: int
    code: int
    id: int | None = None  # None: its creation was not acknowledged
    text: str = ""  # of its line, as last acknowledged
    possible: set = field(default_factory=set)  # texts of changes that got no answer
    is_deleted: bool = False
    may_be_deleted: bool = False
    is_submitted: bool = False
    cancels: int = 0
    may_be_cancelled: bool = False
    history: list = field(default_factory=list)  # what was asked, and the status of the answer

    @property
    def acknowledged(self):
        """How many effects were."""
        return (self.id is not None) + self.is_deleted + self.is_submitted + self.cancels + (" v0" not in self.text)


class Clients:
    """So many writers, on all processes; `companies` are {id, key, automatic}; `bases` where the processes are.

    `promised`: they ask only for submissions that the service promises to carry through, and for none anew.
    """

    def __init__(self, bases, companies, random, counters, promised=False):
        self.invoices = []
        self.stopping = asyncio.Event()
        self._bases, self._companies, self._random, self._counters = bases, companies, random, counters
        self._promised = promised
        self._codes = itertools.count(1)

    async def run(self, writers, pause):
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(connector=connector, middlewares=[once]) as session:
            self._session = session
            async with asyncio.TaskGroup() as group:
                for _ in range(writers):
                    group.create_task(self._write(pause))

    async def _write(self, pause):
        while not self.stopping.is_set():
            await self._random.choice(PROMISED_SCENES if self._promised else SCENES)(self)
            await asyncio.sleep(pause * self._random.random() * 2)

    # Scenes

    async def _at_once(self):
        if invoice := await self._created(self._company(), submitImmediately=True):
            await self._aftermath(invoice)

    async def _automatic(self):
        if invoice := await self._created(self._company(automatic=True), isReady=True):
            await self._aftermath(invoice)

    async def _later(self):
        if invoice := await self._created(self._company()):
            await self._submit_until_told(invoice)
            await self._aftermath(invoice)

    async def _twice(self):
        if invoice := await self._created(self._company()):
            await asyncio.gather(*[self._submit(invoice) for _ in range(4)])
            await self._aftermath(invoice)

    async def _draft(self):
        if invoice := await self._created(self._company()):
            await self._change(invoice)
            if self._random.random() < 0.5:
                await self._delete(invoice)

    async def _aftermath(self, invoice):
        """What somebody may try next with a document that was submitted, or may have been."""
        await asyncio.sleep(self._random.random())
        chance = self._random.random()
        if chance < 0.15 and not self._promised:
            await asyncio.gather(self._change(invoice), self._submit(invoice))
        elif chance < 0.15:
            await self._change(invoice)
        elif chance < 0.25:
            await self._delete(invoice)
        elif chance < 0.6:
            await self._cancel_until_told(invoice)
            if self._random.random() < 0.5 and not self._promised:
                await self._submit_until_told(invoice)

    # Requests

    async def _created(self, company, **more):
        """The Invoice, once it is acknowledged; else None. One that got no answer is asked for again with its key."""
        invoice = Invoice(company["id"], next(self._codes))
        text = f"Coffee {invoice.company}-{invoice.code} v0"
        invoice.possible.add(text)
        self.invoices.append(invoice)
        headers = {"Idempotency-Key": f"create-{invoice.company}-{invoice.code}"}
        for _ in range(4):
            body = body_of(invoice.code, text, **more)
            status, answer = await self._ask(company, "POST", "/api/invoices", body, headers)
            if status == 201:
                invoice.id, invoice.text, invoice.possible = answer["data"]["id"], text, set()
                return invoice
            await asyncio.sleep(PAUSE)
        return None

    async def _submit_until_told(self, invoice):
        for _ in range(5):
            if await self._submit(invoice) not in (*UNKNOWN, 400):
                return
            await asyncio.sleep(PAUSE)

    async def _submit(self, invoice):
        status, _ = await self._ask_of(invoice, "POST", "/submit-to-portal", {})
        invoice.is_submitted |= status == 200
        return status

    async def _cancel_until_told(self, invoice):
        """A document is cancelled once it is known that the portal has it."""
        for _ in range(8):
            if await self._cancel(invoice) not in (*UNKNOWN, 400, 409):
                return
            await asyncio.sleep(4 * PAUSE)

    async def _cancel(self, invoice):
        status, _ = await self._ask_of(invoice, "POST", "/cancel-latest-invoice-submitted", {"reason": "By mistake"})
        invoice.cancels += status == 200
        invoice.may_be_cancelled |= status in {*UNKNOWN, 200, 400}
        return status

    async def _change(self, invoice):
        text = f"Coffee {invoice.company}-{invoice.code} v{self._random.randrange(1, 10**6)}"
        invoice.possible.add(text)
        status, _ = await self._ask_of(invoice, "PUT", "", {"lineItems": [line(text)]})
        if status not in UNKNOWN:
            invoice.possible.discard(text)
        if status == 200:
            invoice.text = text

    async def _delete(self, invoice):
        status, _ = await self._ask_of(invoice, "DELETE", "", None)
        invoice.is_deleted |= status == 200
        invoice.may_be_deleted |= status in UNKNOWN

    async def _ask_of(self, invoice, method, path, body):
        company = next(each for each in self._companies if each["id"] == invoice.company)
        status, answer = await self._ask(company, method, f"/api/invoices/{invoice.id}{path}", body)
        invoice.history.append(f"{method}{path} {status}")
        return status, answer

    async def _ask(self, company, method, path, body, headers=None):
        """(status, body) of the answer of one of the processes; (None, None) without one."""
        self._counters.count("requests")
        request = {"json": body, "headers": {"X-API-Key": company["key"], **(headers or {})}, "timeout": PATIENCE}
        try:
            async with await self._reached(method, path, request) as response:
                status, answer = response.status, await response.json()
        except (aiohttp.ClientError, TimeoutError):
            self._counters.count("requests without answer")
            return None, None
        self._counters.count(f"answers {status}")
        if status == 500:
            self._counters.violate("answered 500", f"{method} {path} {answer}")
        return status, answer

    async def _reached(self, method, path, request):
        """The response of the first process that takes a connection; the last one's error when none does."""
        *others, last = self._random.sample(self._bases, len(self._bases))
        for base in others:
            with suppress(aiohttp.ClientConnectorError):
                return await self._session.request(method, base + path, **request)
        return await self._session.request(method, last + path, **request)

    def _company(self, automatic=False):
        return self._random.choice([each for each in self._companies if each["automatic"] == automatic])

    def created(self):
        return sum(each.id is not None for each in self.invoices)

    def told(self):
        """{effect: how many were acknowledged}"""
        return {
            "acknowledged effects": sum(each.acknowledged for each in self.invoices),
            "created": self.created(),
            "deleted": sum(each.is_deleted for each in self.invoices),
            "submitted": sum(each.is_submitted for each in self.invoices),
            "cancelled": sum(each.cancels for each in self.invoices),
        }


#: What a writer does next; one that stands twice comes twice as often.
SCENES = (
    *[Clients._at_once, Clients._at_once],
    *[Clients._automatic, Clients._automatic, Clients._automatic],
    *[Clients._later, Clients._later],
    Clients._twice,
    Clients._draft,
)
#: Those that only ask for what is promised: what is "failed" to its caller is let go when it seems absent.
PROMISED_SCENES = (Clients._at_once, Clients._automatic, Clients._automatic, Clients._draft)


async def once(request, handler):
    """Keeps the library from repeating a PUT or DELETE whose connection broke: the second answer is not the first's."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # nothing was sent
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as fault:
        raise aiohttp.ClientError(str(fault)) from fault


def body_of(code, text, **more):
    at = datetime.now(UTC) - timedelta(seconds=5)
    address = {"line1": "5 Jalan Dahlia", "city": "Shah Alam", "state": "10", "zipCode": "40150", "country": "MYS"}
    party = {
        "type": "LOCAL_INDIVIDUAL",
        "name": "Aminah binti Salleh",
        "registration": {"type": "NRIC", "number": "900101105566"},
        "contactNumber": "+60123456789",
        "address": address,
    }
    invoice = {"type": "INVOICE", "code": code, "issueDateTime": f"{at:%Y-%m-%dT%H:%M:%SZ}", "buyer": party}
    return {**invoice, "lineItems": [line(text)], **more}


def line(text):
    return {
        "id": "1",
        "description": text,
        "classifications": ["022"],
        "unit": {"code": "KGM", "price": 48, "count": 2},
        "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
        "originCountry": "MYS",
    }
