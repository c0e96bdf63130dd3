"""Clients that read, create and submit while PostgreSQL fails over, and record every answer."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from harness.waiting import patience, wait_until
from kit import invoice

#: A request that takes longer hangs.
LONGEST_SECONDS = 40
#: Pause of each client between two requests, so that the load is bounded.
PAUSE_SECONDS = 0.05
#: Codes of submissions that are not sent now, and that a client may repeat.
RETRYABLE = {"sending_held", "outcome_unknown", "not_received", "portal_unavailable"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with the times of the request. Status 0: there was none."""

    kind: str
    began: float
    ended: float
    status: int
    code: str
    retry_after: str | None
    body: Any

    @property
    def is_success(self) -> bool:
        """Return whether the effect is acknowledged."""
        return self.status in (200, 201)

    @property
    def is_expected(self) -> bool:
        """Return whether a client may get this answer at any time."""
        if self.status == 503:
            return bool(self.retry_after)
        if self.status == 409:
            return self.code == "idempotency_key_running"
        is_retryable = self.kind == "submit" and self.code in RETRYABLE and self.retry_after
        return self.is_success or bool(is_retryable)


@dataclass
class Load:
    """Clients of several API processes with one key. `client` has the key, and no address."""

    client: aiohttp.ClientSession
    bases: list[str]
    answers: list[Answer] = field(default_factory=list)
    created: dict[int, int] = field(default_factory=dict)  # acknowledged: id -> code
    submitted: set[int] = field(default_factory=set)  # acknowledged, or promised
    is_over: bool = False
    _turns: Iterator[int] = field(default_factory=itertools.count)

    async def run(self, disturb: Callable[[], Awaitable[None]]) -> None:
        """Run the clients while something is disturbed, until each has gone on after it."""
        clients = [self._read] * 2 + [self._create] * 2 + [self._create_with_key] * 2
        clients += [self._submit] * 4 + [self._submit_immediately]
        tasks = [asyncio.create_task(client()) for client in clients]
        try:
            await self.go_on(self.now())
            await disturb()
            await self.go_on(self.now())
            self.is_over = True
            async with patience(180):
                await asyncio.gather(*tasks)
        except TimeoutError:
            latest = [f"{one.kind} {one.status} {one.body}" for one in self.answers[-20:]]
            raise RuntimeError("\n".join(latest)) from None
        finally:
            for task in tasks:
                task.cancel()

    @staticmethod
    def now() -> float:
        """Return the time in the clock of the answers."""
        return time.monotonic()

    async def go_on(self, since: float, seconds: float = 180) -> None:
        """Wait until a create that began later has succeeded, and a submit was answered."""
        await wait_until(lambda: self.succeeded(since, "create") and self._submits(since), seconds)

    def _submits(self, since: float) -> bool:
        """Return whether a submit was answered by more than a 503; a held one is a 400."""
        return any(
            one.kind == "submit" and one.status not in (0, 503)
            for one in self.answers
            if one.began > since
        )

    def succeeded(self, since: float, kind: str) -> Answer | None:
        """Return the first success of a request that began later."""
        found = (one for one in self.answers if one.kind == kind and one.began > since)
        return next((one for one in found if one.is_success), None)

    def unexpected(self) -> list[Answer]:
        """Return the answers that no client should get."""
        return [one for one in self.answers if not one.is_expected]

    def describe(self, name: str, since: float) -> str:
        """Return a line with what clients have seen since a failure."""
        after = [one for one in self.answers if one.ended > since]
        first = {kind: self.succeeded(since, kind) for kind in ("read", "create", "submit")}
        back = [f"{kind} {one.ended - since:.1f} s" for kind, one in first.items() if one]
        counts = Counter(f"{one.status} {one.code}".strip() for one in after)
        slowest = max((one.ended - one.began for one in after), default=0)
        return (
            f"failover {name}: back after: {', '.join(back)}; longest pause of creates "
            f"{self._longest_pause(since):.1f} s; slowest answer {slowest:.1f} s; answers "
            f"{dict(counts.most_common())}; acknowledged {len(self.created)} creates, "
            f"{len(self.submitted)} submissions"
        )

    def _longest_pause(self, since: float) -> float:
        """Return the longest time between two successful creates since a failure."""
        ends = sorted(
            one.ended
            for one in self.answers
            if one.kind == "create" and one.is_success and one.ended > since - 1
        )
        return max((b - a for a, b in itertools.pairwise(ends)), default=0)

    async def _read(self) -> None:
        while not self.is_over:
            await self._send("read", "GET", "/api/invoices?per_page=1")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _create(self) -> None:
        """Create invoices without a key. An unclear request is not repeated."""
        while not self.is_over:
            body = invoice()
            answer = await self._send("create", "POST", "/api/invoices", body)
            if answer.is_success:
                self.created[answer.body["data"]["id"]] = body["code"]
            await asyncio.sleep(PAUSE_SECONDS)

    async def _create_with_key(self) -> None:
        while not self.is_over:
            await self._create_until_acknowledged()

    async def _create_until_acknowledged(self, **members: Any) -> int:
        body = invoice(**members)
        while True:
            headers = {"Idempotency-Key": f"key-{body['code']}"}
            answer = await self._send("create", "POST", "/api/invoices", body, headers)
            await asyncio.sleep(PAUSE_SECONDS)
            if answer.is_success:
                invoice_id = answer.body["data"]["id"]
                self.created[invoice_id] = body["code"]
                return invoice_id

    async def _submit_immediately(self) -> None:
        while not self.is_over:
            self.submitted.add(await self._create_until_acknowledged(submitImmediately=True))
            await asyncio.sleep(PAUSE_SECONDS * 10)

    async def _submit(self) -> None:
        """Create invoices, and submit each until its success is acknowledged."""
        while not self.is_over:
            invoice_id = await self._create_until_acknowledged()
            path = f"/api/invoices/{invoice_id}/submit-to-portal"
            while not (await self._send("submit", "POST", path, {})).is_success:
                await asyncio.sleep(PAUSE_SECONDS * 4)
            self.submitted.add(invoice_id)

    async def _send(
        self,
        kind: str,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request to the next process, and record its answer."""
        url = self.bases[next(self._turns) % len(self.bases)] + path
        began, timeout = self.now(), aiohttp.ClientTimeout(total=LONGEST_SECONDS)
        try:
            async with self.client.request(
                method, url, json=body, headers=headers, timeout=timeout
            ) as response:
                status, parsed = response.status, await response.json()
                retry_after = response.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError) as error:
            status, parsed, retry_after = 0, {"code": type(error).__name__}, None
        code = "" if status in (200, 201) else parsed.get("code", "")
        answer = Answer(kind, began, self.now(), status, code, retry_after, parsed)
        self.answers.append(answer)
        return answer
