"""A receiver of webhooks that records what arrives, and fails some requests on purpose."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
from aiohttp import web

from tests.harness.signatures import is_signed_by

from .clients import Company

#: Answers on purpose, with their shares: a status, no answer within the timeout, no answer at all.
ERRORS = ((500, 0.03), ("late", 0.01), ("cut", 0.02))
LATE_SECONDS = 1.5  # longer than the timeout of an attempt; multiplied on a slow machine
#: Types of events and further members of the endpoints of each company.
ALL = {"types": []}
SOME = {
    "types": ["invoice.created", "invoice.valid", "invoice.cancelled", "adjustment_note.valid"],
    "include_record": True,
    "ordered": True,
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to an endpoint. `is_accepted`: the response was a success."""

    event: int  # id of the event, 0 if the request names none
    is_signed: bool
    is_accepted: bool
    body: Any


@dataclass
class Endpoint:
    """A webhook of a company. Events up to `after` are older than it."""

    company: int
    id: int
    types: Sequence[str]
    secret: str
    is_ordered: bool = True
    after: int = 0
    arrivals: list[Arrival] = field(default_factory=list)


class Receiver:
    """Listens on loopback, one path for each endpoint. `fails`: some requests get no success."""

    def __init__(self, random: Random) -> None:
        self.endpoints: list[Endpoint] = []
        self.fails = False
        self.late_seconds = LATE_SECONDS
        self._random = random
        app = web.Application()
        app.router.add_post("/{number}", self._receive)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> "Receiver":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def subscribe(self, base: str, companies: Sequence[Company]) -> None:
        """Create two endpoints for each company, which has no events yet."""
        async with aiohttp.ClientSession(base) as session:
            for company in companies:
                for members in (ALL, SOME):
                    await self._create(session, company, members)

    async def _create(
        self, session: aiohttp.ClientSession, company: Company, members: dict[str, Any]
    ) -> None:
        host, port = self._runner.addresses[0][:2]
        body = {"url": f"http://{host}:{port}/{len(self.endpoints)}", **members}
        headers = {"X-API-Key": company["key"]}
        async with session.post("/api/webhooks", json=body, headers=headers) as response:
            response.raise_for_status()
            data = (await response.json())["data"]
        endpoint = Endpoint(
            company["id"], data["id"], members["types"], data["secret"], "ordered" in members
        )
        self.endpoints.append(endpoint)

    async def _receive(self, request: web.Request) -> web.Response:
        endpoint = self.endpoints[int(request.match_info["number"])]
        text = await request.text()
        answer = self._choose_answer()
        identifier = request.headers.get("webhook-id", "").removeprefix("evt_")
        endpoint.arrivals.append(
            Arrival(
                int(identifier) if identifier.isdigit() else 0,
                is_signed_by(request.headers, text, endpoint.secret),
                answer == 200,
                json.loads(text),
            )
        )
        if answer == "late":
            await asyncio.sleep(self.late_seconds)
        elif answer == "cut" and request.transport is not None:
            request.transport.close()
        return web.Response(status=answer if isinstance(answer, int) else 500)

    def _choose_answer(self) -> int | str:
        chance = self._random.random() if self.fails else 1.0
        for answer, share in ERRORS:
            if chance < share:
                return answer
            chance -= share
        return 200
