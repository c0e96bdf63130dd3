"""A service and a sandbox whose processor time is measured, with records of every kind."""

import http.client
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from yarl import URL

from service.commands.integrations import add_integration_key, add_organization
from service.config import Config, read_config
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.http import limits
from tests.harness import failing
from tests.harness.bodies import example
from tests.harness.companies import Company, add_company
from tests.harness.databases import create_database, name_of, provide_server
from tests.harness.environments import make_environment
from tests.harness.processes import SandboxProcess, Service
from tests.harness.visitors import PASSWORD, Visitor, join, make_person
from tests.harness.waiting import wait_until

ANSWER_SECONDS = 120
OWNER = "owner@example.com"
#: Limits of requests per minute would refuse most inputs before they are read.
SETTINGS = {
    "REQUESTS_PER_MINUTE": "0",
    "INTEGRATION_REQUESTS_PER_MINUTE": "0",
    "WRONG_KEYS_PER_MINUTE": "0",
    "TIN_CHECKS_PER_MINUTE": "0",
    "PORTAL_RATE_SCALE": "0",
    "SANDBOX_RATE_SCALE": "0",
    "SANDBOX_PROCESSING_SECONDS": "0",
    "TRUSTED_PROXIES": "127.0.0.1",
    "CONSOLIDATION_DAYS": "40",
    "WEBHOOK_ALLOW_INTERNAL": "true",
    "PORTAL_POLL_SECONDS": "0.2",
    "LOG_LEVEL": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request: its headers may repeat a name, and its path is sent as it is."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of a response, 0 if there was none, its headers and its body."""

    status: int
    headers: http.client.HTTPMessage | None = None
    body: bytes = b""


class Server:
    """A process that answers HTTP, and the processor time of it and its database connections."""

    def __init__(self, base: str, pid: int, database: str = "") -> None:
        self._host, self._pid, self._database = urlsplit(base).netloc, pid, database
        self._backends: list[int] = []

    def send(self, request: Request) -> Answer:
        """Send a request over a connection of its own, and return the response.

        The server may respond to a large request, and close the connection, before it is sent.
        """
        connection = http.client.HTTPConnection(self._host, timeout=ANSWER_SECONDS)
        try:
            connection.putrequest(request.method, request.path, skip_accept_encoding=True)
            for name, text in request.headers:
                connection.putheader(name, text.encode("latin-1"))
            if request.body and "Transfer-Encoding" not in dict(request.headers):
                connection.putheader("Content-Length", str(len(request.body)))
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.endheaders(request.body or None)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        except (ConnectionError, http.client.HTTPException):
            return Answer(0)
        finally:
            connection.close()

    def measure(self, requests: Sequence[Request]) -> float:
        """Return the processor time in seconds of requests that are sent one after the other."""
        began = self._read_clocks()
        for request in requests:
            self.send(request)
        ended = self._read_clocks()
        return sum(ended[pid] - began[pid] for pid in ended if pid in began)

    def find_backends(self) -> None:
        """Find the processes of PostgreSQL that serve connections to the database."""
        mark = f" {self._database} ".encode()
        self._backends = [
            int(path.name)
            for path in Path("/proc").iterdir()
            if self._database and path.name.isdigit() and mark in _read_command(path)
        ]

    def _read_clocks(self) -> dict[int, float]:
        clocks: dict[int, float] = {}
        for pid in (self._pid, *self._backends):
            with suppress(OSError):  # PostgreSQL closes connections
                clocks[pid] = time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3)
        return clocks


def _read_command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


@dataclass(slots=True)
class Installation:
    """The measured processes, and what is needed to reach their doors.

    `ids` are records by the path of their resource, `tokens` those of links by the path of their
    page. The sessions are headers: of an owner, and of a visitor without a session.
    """

    service: Server
    portal: Server
    company: Company
    integration_key: str
    ids: dict[str, str] = field(default_factory=dict[str, str])
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    session: str = ""
    visitor: str = ""

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of a request to an operation of the API."""
        return [
            ("Content-Type", "application/json"),
            ("X-API-Key", self.company.key),
            ("X-Portal-Key", self.integration_key),
        ]

    def create(self, path: str, body: object) -> Any:
        """Create a record of the API and return its data."""
        request = Request("POST", path, self.headers(), json.dumps(body).encode())
        answer = self.service.send(request)
        if answer.status != 201:
            raise RuntimeError(f"POST {path}: {answer.status} {answer.body[:500]!r}")
        record = json.loads(answer.body)
        return record.get("data", record)

    def read(self, path: str) -> Any:
        """Return a record of the API."""
        return json.loads(self.service.send(Request("GET", path, self.headers())).body)


def run_without_limits(arguments: Sequence[str]) -> None:
    """Run a command of run.py without the limits of requests that have no setting."""
    limits.TRIES_PER_MINUTE = 0
    limits.PUBLIC_PAGES_PER_MINUTE = 0
    limits.PORTAL_TESTS_PER_MINUTE = 0
    failing.run_command(arguments)


class MeasuredService(Service):
    """A service without limits of requests per minute."""

    def _choose_target(self, failure: failing.Failure | None) -> partial[None]:
        return partial(run_without_limits, self._arguments)


@asynccontextmanager
async def open_installation() -> AsyncIterator[Installation]:
    """Run a service and its sandbox on an empty database, and yield the Installation."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="growth-")))
        server = await stack.enter_async_context(provide_server(home / "postgres", durable=False))
        url = await stack.enter_async_context(create_database(server))
        await migrate(url)
        settings = {**SETTINGS, "SANDBOX_STATE": str(home / "sandbox.sqlite3")}
        portal = SandboxProcess(settings, home / "sandbox.log")
        await stack.enter_async_context(portal)
        environment = {
            **make_environment(url, portal.base),
            **settings,
            "SECRET_KEY": "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=",
            "DATA_DIR": str(home),
        }
        config = read_config(environment)
        pool = await stack.enter_async_context(connected_pool(url, 2))
        database = Database(pool)
        company = await add_company(config, database)
        account = "Penang Trading Group"
        made = await add_integration_key(config, database, account)
        service = MeasuredService(environment, home / "service.log")
        await stack.enter_async_context(service)
        assert service.pid and portal.pid
        installation = Installation(
            Server(service.base, service.pid, name_of(url)),
            Server(portal.base, portal.pid),
            company,
            made["key"],
        )
        await _add_people(installation, config, service.base)
        organization = await add_organization(config, database, account, "Penang Trading")
        installation.ids["/api/integrations/organizations"] = organization["id"]
        await _add_records(installation)
        yield installation


async def _add_people(installation: Installation, config: Config, base: str) -> None:
    """Add an owner with a session, and a person whose link is not used yet."""
    site = URL(base)
    await join(config, site, installation.company.id, OWNER, "owner")
    async with Visitor(site) as visitor:
        await visitor.get("/sign-in")
        installation.visitor = visitor.cookies["einvoice_visitor"]
        await visitor.sign_in(OWNER, PASSWORD)
        installation.session = "; ".join(f"{name}={text}" for name, text in visitor.cookies.items())
    link = await make_person(config, installation.company.id, "new@example.com", "member")
    installation.tokens["/link"] = link.rpartition("/")[2]


async def _add_records(installation: Installation) -> None:
    """Create a record of every resource."""
    now = f"{datetime.now(UTC) - timedelta(seconds=5):%Y-%m-%dT%H:%M:%SZ}"
    body = {**example("invoice_create"), "issueDateTime": now}
    draft = str(installation.create("/api/invoices", {**body, "code": 1})["id"])
    valid = str(
        installation.create("/api/invoices", {**body, "code": 2, "submitImmediately": True})["id"]
    )
    await wait_until(lambda: installation.read(f"/api/invoices/{valid}")["status"] == "Valid")
    note = {**example("adjustment_note_create"), "adjustmentNoteIssueDate": now}
    asked = installation.create("/api/einvoice-requests", example("einvoice_request_create"))
    webhook = installation.create("/api/webhooks", {"url": "http://127.0.0.1:9/"})
    user = installation.create("/api/integrations/users", example("integration_user_create"))
    installation.ids |= {"/api/invoices": draft, "/invoices": draft, "submitted": valid}
    installation.ids |= {
        place: str(record["id"])
        for place, record in {
            "/api/adjustment-notes": installation.create(
                f"/api/invoices/{valid}/adjustment-note", note
            ),
            "/api/einvoice-requests": asked,
            "/api/webhooks": webhook,
            "/api/integrations/users": user,
        }.items()
    }
    pending = installation.create(
        "/api/invoices",
        {
            **body,
            "code": 3,
            "type": "PENDING_FINALIZE_INVOICE",
            "buyer": {"type": "GENERAL_PUBLIC"},
        },
    )
    for purpose, place in (("view", "/shared"), ("request", "/receipt")):
        link = installation.create(f"/api/invoices/{pending['id']}/links", {"purpose": purpose})
        installation.tokens[place] = link["url"].rpartition("/")[2]
