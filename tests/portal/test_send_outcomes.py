"""The state of a submission after each response of the sandbox: one row for each."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpServer

from service.config import Config
from service.portal.client import Portal, portal_session
from service.portal.errors import PortalError
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings
from service.submission.machine import state_machine
from service.submission.machine.types import Event, Submission, SubmittedDocument
from service.submission.sending import send
from tests.harness.processes import free_port
from tests.harness.sandbox import Administration
from tests.portal.test_portal_client import TIN, config_for, fresh_submission, send_submission

Fault = dict[str, Any]
NUMBER, NOW = "INV-7", datetime(2026, 9, 14, 3, 26, tzinfo=UTC)
CUT_AFTER = 1.0  # seconds; long enough to connect on a busy machine


def fault(kind: str, operation: str = "submit", **members: Any) -> Fault:
    return {"kind": kind, "operation": operation, **members}


UNTIL_CUT: Fault = {"seconds": 600}
REFUSED_TOKEN = fault("unauthorized")
#: Name -> faults, state of the submission, requests that the portal counts, documents that it has.
OUTCOMES: dict[str, tuple[list[Fault], str, int, int]] = {
    "202": ([], "Accepted", 1, 1),
    # Not processed: queued again
    "429": ([fault("throttle", retry_after=7)], "Queued", 1, 0),
    "login without a response": ([fault("drop", "login")], "Queued", 0, 0),
    "login too slow": ([fault("slow", "login", **UNTIL_CUT)], "Queued", 0, 0),
    "login 503": ([fault("error_before", "login")], "Queued", 0, 0),
    "login 429": ([fault("throttle", "login")], "Queued", 0, 0),
    "login page": ([fault("html", "login")], "Queued", 0, 0),
    # A 401 is repeated once
    "401": ([REFUSED_TOKEN], "Accepted", 2, 1),
    "401 twice": ([REFUSED_TOKEN] * 3, "Queued", 2, 0),
    "401, then 429": ([REFUSED_TOKEN, fault("throttle")], "Queued", 2, 0),
    "401, then no response": ([REFUSED_TOKEN, fault("accept_then_drop")], "Uncertain", 2, 1),
    # Written, without a clear response: unknown, and never repeated
    "closed before": ([fault("drop")], "Uncertain", 1, 0),
    "closed after": ([fault("accept_then_drop")], "Uncertain", 1, 1),
    "too slow": ([fault("slow", **UNTIL_CUT)], "Uncertain", 1, 1),
    "byte by byte": ([fault("drip", seconds=60)], "Uncertain", 1, 1),
    "cut": ([fault("truncate")], "Uncertain", 1, 1),
    "longer than 1 MiB": ([fault("oversized")], "Uncertain", 1, 1),
    "not JSON": ([fault("garbage")], "Uncertain", 1, 1),
    "not JSON and not processed": ([fault("garbage", processed=False)], "Uncertain", 1, 0),
    "202 with neither": ([fault("neither")], "Uncertain", 1, 1),
    "page": ([fault("html")], "Uncertain", 1, 0),
    "page with 202": ([fault("html", status=202, processed=True)], "Uncertain", 1, 1),
    "page with 403": ([fault("html", status=403)], "Uncertain", 1, 0),
    "302": ([fault("redirect")], "Uncertain", 1, 0),
    "307 after": ([fault("redirect", status=307, processed=True)], "Uncertain", 1, 1),
    "308": ([fault("redirect", status=308)], "Uncertain", 1, 0),
    "408": ([fault("error_before", status=408)], "Uncertain", 1, 0),
    "500": ([fault("error_before", status=500)], "Uncertain", 1, 0),
    "503 after": ([fault("error_after")], "Uncertain", 1, 1),
    # The same bytes were received earlier: unknown, and never refused
    "422 duplicate": ([fault("duplicate")], "Uncertain", 1, 0),
    "422 duplicate after": ([fault("duplicate", processed=True)], "Uncertain", 1, 1),
    # Refused
    "400": ([fault("refuse")], "Refused", 1, 0),
    "400 too large": ([fault("refuse", code="MaximumSizeExceeded")], "Refused", 1, 0),
    "403": ([fault("refuse", status=403, code="IncorrectSubmitter")], "Refused", 1, 0),
    "400 of another taxpayer": ([fault("foreign")], "Refused", 1, 0),
    "422 for another reason": ([fault("refuse", status=422)], "Refused", 1, 0),
    "202 that rejects it": ([fault("reject")], "Refused", 1, 0),
}
#: Name -> base URL of the submit request. Nothing is written.
NOT_WRITTEN = {
    "unknown name": "http://portal.invalid",
    "connection refused": "http://127.0.0.1:{free}",
    "no TLS": "https://127.0.0.1:{port}",
}


class Installation:
    """A sandbox, and the paths of all requests that it has responded to."""

    def __init__(self, tmp_path: Path) -> None:
        self.port = free_port()
        settings = Settings(
            port=self.port,
            state=str(tmp_path / "sandbox.sqlite3"),
            rate_scale=0,
            tin=TIN,
            client_id="the-client",
            client_secret="the-secret",
        )
        self.app = create_sandbox(settings)
        self.app.on_response_prepare.append(self._note)
        self.paths: list[str] = []
        self.base = f"http://{settings.host}:{settings.port}"
        self.administration = Administration(self.base)

    async def _note(self, request: web.Request, _: web.StreamResponse) -> None:
        self.paths.append(request.path)

    async def submit(self, **variables: str) -> str:
        """Submit a document and return the state that its submission then has."""
        config = config_for(self.base, **{"PORTAL_TIMEOUT_SECONDS": str(CUT_AFTER), **variables})
        async with portal_session() as session:
            event = await _send(Portal(session, config))
        return _move(event, config)

    async def count(self) -> tuple[int, int]:
        """Return the numbers of submit requests and of documents at the portal."""
        calls = await self.administration.calls()
        return calls["calls"].get("submit", 0), len(await self.administration.ledger())


async def _send(portal: Portal) -> Event:
    try:
        return await send_submission(portal, fresh_submission(NUMBER))
    except PortalError as error:
        return send.describe_failure(error)


def _move(event: Event, config: Config) -> str:
    document = SubmittedDocument(1, NUMBER, "01", NOW)
    sending = Submission(
        "Sending", "retry", NOW, docs=(document,), first_sent_at=NOW, last_sent_at=NOW
    )
    return state_machine.step(sending, event, config)[0].state


@pytest.fixture
async def installation(tmp_path: Path, aiohttp_server: AiohttpServer) -> Installation:
    installation = Installation(tmp_path)
    await aiohttp_server(installation.app, port=installation.port)
    return installation


@pytest.mark.parametrize("faults, state, requests, documents", OUTCOMES.values(), ids=OUTCOMES)
async def test_a_response_decides_the_state_of_a_submission(
    installation: Installation, faults: list[Fault], state: str, requests: int, documents: int
) -> None:
    for each in faults:
        await installation.administration.fault(**each)
    async with asyncio.timeout(30):
        assert await installation.submit() == state
    assert await installation.count() == (requests, documents)
    assert "/maintenance" not in installation.paths  # no redirect is followed


@pytest.mark.parametrize("base", NOT_WRITTEN.values(), ids=NOT_WRITTEN)
async def test_a_submission_that_was_not_written_is_queued(
    installation: Installation, base: str
) -> None:
    base = base.format(free=free_port(), port=installation.port)
    assert await installation.submit(PORTAL_API_BASE=base) == "Queued"
    assert await installation.count() == (0, 0)


def test_a_request_has_25_seconds_in_all() -> None:
    assert config_for("http://127.0.0.1").portal_timeout == timedelta(seconds=25)
