"""A receiver of webhooks on loopback, and the requests of the webhook tests."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpServer

from tests.api_reads import get_json
from tests.api_requests import create_record
from tests.conftest import AnyClient, until
from tests.harness.environments import GENEROUS

#: Receivers on loopback are allowed, and retries after days take place at once.
LOCAL = {
    "SECRET_KEY": GENEROUS["SECRET_KEY"],
    "WEBHOOK_ALLOW_INTERNAL": "true",
    "WEBHOOK_TIMEOUT_SECONDS": "1",
    "WEBHOOK_RETRY_SCALE": "0.000001",
}


class Receiver:
    """A receiver of webhooks that keeps all requests."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[tuple[Mapping[str, str], str]] = []  # headers and body
        # Statuses or handlers of the next requests, then 200.
        self.answers: list[int | Callable[[web.Request], Any]] = []
        self.at_once = self.most_at_once = 0

    async def take(self, request: web.Request) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.got.append((request.headers, await request.text()))
            answer = self.answers.pop(0) if self.answers else 200
            if callable(answer):
                return await answer(request)
            return web.Response(status=answer, text="Thank you.")
        finally:
            self.at_once -= 1

    def hold(self, count: int = 1, status: int = 200) -> asyncio.Event:
        """Let the next requests wait for the returned event, and answer them with a status."""
        released = asyncio.Event()

        async def answer(_: web.Request) -> web.Response:
            await released.wait()
            return web.Response(status=status)

        self.answers += [answer] * count
        return released

    async def gets(self, count: int) -> list[tuple[Mapping[str, str], str]]:
        """Wait for `count` requests and return them."""

        async def got() -> list[tuple[Mapping[str, str], str]]:
            return self.got

        return (await until(got, lambda got: len(got) >= count))[:count]

    def invoices(self) -> list[int]:
        return [json.loads(body)["data"]["invoice_id"] for _, body in self.got]


@pytest.fixture
async def receiver(aiohttp_server: AiohttpServer) -> Receiver:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/hook", receiver.take)
    server = await aiohttp_server(app)
    receiver.url = str(server.make_url("/hook"))
    return receiver


async def create_endpoint(api: AnyClient, url: str, **members: Any) -> tuple[int, str]:
    """Create an endpoint, and return its id and its secret."""
    data = await create_record(api, "/api/webhooks", url=url, **members)
    return data["id"], data["secret"]


async def list_deliveries(api: AnyClient, webhook_id: int) -> list[dict[str, Any]]:
    """Return the deliveries of an endpoint, newest first."""
    return (await get_json(api, f"/api/webhooks/{webhook_id}/deliveries"))["data"]


async def wait_for_delivery(api: AnyClient, webhook_id: int, status: str) -> dict[str, Any]:
    """Return the only delivery of an endpoint as soon as it has a status."""
    [found] = await until(
        lambda: list_deliveries(api, webhook_id),
        lambda listed: [one["status"] for one in listed] == [status],
    )
    return found
