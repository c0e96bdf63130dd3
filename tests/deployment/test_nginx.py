"""nginx with the configuration of deploy/nginx/, in front of two API processes and a worker."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.api_invoices import create_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import expect, request_json
from tests.conftest import Company, patience, until
from tests.harness.bodies import invoice, line
from tests.harness.nginx import NAME, Local, Nginx, needs_nginx
from tests.harness.processes import ChildProcess, Service
from tests.harness.waiting import wait_until

pytestmark = needs_nginx

UNAVAILABLE = {502, 503, 504}
MAX_BODY = 2 * 1024 * 1024


@dataclass
class Site:
    """A deployment: nginx, two API processes without background work, and a client with a key."""

    nginx: Nginx
    processes: list[ChildProcess]
    client: aiohttp.ClientSession
    tls: ssl.SSLContext
    key: str

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.nginx.port, ssl=self.tls, server_hostname=NAME
        )

    def head(self, line: str, *fields: str) -> bytes:
        lines = [line, f"Host: {NAME}", f"X-API-Key: {self.key}", *fields]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def answer_to(self, line: str, *fields: str) -> bytes:
        """Return the response to a request line that a client would normalize."""
        reader, writer = await self.connect()
        writer.write(self.head(line, "Connection: close", *fields))
        async with patience():
            answer = await reader.read()
        writer.close()
        return answer


async def enter_site(
    stack: AsyncExitStack, processes: list[ChildProcess], home: Path, company: Company
) -> Site:
    """Start nginx in front of running processes, and a client, until the stack ends."""
    home.mkdir()
    nginx = Nginx(home, [process.port for process in processes])
    await stack.enter_async_context(nginx)
    tls = ssl.create_default_context(cafile=nginx.certificate)
    connector = aiohttp.TCPConnector(resolver=Local(), ssl=tls, limit=0)
    client = aiohttp.ClientSession(
        nginx.base, connector=connector, headers={"X-API-Key": company.key}
    )
    await stack.enter_async_context(client)
    return Site(nginx, processes, client, tls, company.key)


#: Starts a site with variables of the service.
OpenSite = Callable[..., Awaitable[Site]]


@pytest.fixture
async def open_site(
    environment: dict[str, str], company: Company, tmp_path: Path
) -> AsyncIterator[OpenSite]:
    """Yield a function that starts a site."""
    async with AsyncExitStack() as stack:

        async def start(**variables: str) -> Site:
            values = {"LOG_LEVEL": "INFO", "TRUSTED_PROXIES": "127.0.0.1", **variables}
            arguments = ["serve", "--no-background"]
            processes: list[ChildProcess] = [
                Service({**environment, **values}, tmp_path / f"api-{number}.log", arguments)
                for number in (1, 2)
            ]
            await asyncio.gather(*map(stack.enter_async_context, processes))
            return await enter_site(stack, processes, tmp_path / "nginx", company)

        yield start


@pytest.fixture
async def site(open_site: OpenSite) -> Site:
    return await open_site()


async def test_configuration_is_valid_and_has_no_warnings(site: Site) -> None:
    output = await site.nginx.check()
    assert "test is successful" in output and "[warn]" not in output


async def test_two_api_processes_and_a_worker_share_the_work(
    site: Site, environment: dict[str, str], tmp_path: Path
) -> None:
    async with ChildProcess(["worker"], environment, tmp_path / "worker.log") as worker:
        ids = [await create_invoice(site.client, submitImmediately=True) for _ in range(4)]
        for invoice_id in ids:
            await wait_for_status(site.client, invoice_id, "Valid")
        await asyncio.gather(*[get_invoice(site.client, ids[0]) for _ in range(20)])
        assert await worker.stop() == 0
    upstreams = re.findall(r'"upstream":"([^"]+)"', site.nginx.access_log())
    assert set(upstreams) == {f"127.0.0.1:{process.port}" for process in site.processes}


async def test_request_id_reaches_the_service_and_both_logs(site: Site) -> None:
    for sent in ("order-17", "not an id"):
        async with site.client.get("/api/invoices", headers={"X-Request-Id": sent}) as response:
            request_id = response.headers["X-Request-Id"]
        assert request_id == sent or (" " in sent and re.fullmatch("[0-9a-f]{32}", request_id))
        await until(
            lambda: asyncio.to_thread(site.nginx.access_log),
            lambda log, request_id=request_id: f'"request_id":"{request_id}"' in log,
        )
        await until(
            lambda: asyncio.to_thread(
                lambda: "".join(process.output() for process in site.processes)
            ),
            lambda log, request_id=request_id: f"request_id={request_id} " in log,
        )


async def test_logs_hold_no_keys_queries_or_tokens(site: Site) -> None:
    """Neither of requests that succeed, nor of those that fail in nginx or in the service."""
    secret = "Aminah-and-a-token"
    for path in ("/api/invoices?query=", "/link/", "/shared/", "/receipt/", "/nowhere?"):
        async with site.client.get(f"{path}{secret}", allow_redirects=False) as response:
            assert response.status < 500
    assert b" 404 " in await site.answer_to(f"GET //Link%2f{secret} HTTP/1.1")
    await expect(site.client, 400, "GET", f"/api/invoices/{site.key}")
    for process in site.processes:
        await process.kill()
    await expect(site.client, 502, "GET", f"/link/{secret}?a={secret}")
    data = b"x" * (MAX_BODY + 1)
    await expect(site.client, 413, "POST", f"/api/invoices?query={secret}", data=data)
    await until(
        lambda: asyncio.to_thread(site.nginx.access_log), lambda log: '"status":"413"' in log
    )
    logs = site.nginx.all_logs() + "".join(process.output() for process in site.processes)
    assert secret not in logs and site.key not in logs


async def test_errors_of_nginx_are_json_with_a_request_id(site: Site) -> None:
    for process in site.processes:
        await process.kill()
    async with site.client.get("/api/invoices") as response:
        assert response.status == 502 and response.headers["Retry-After"] == "2"
        assert len(response.headers["X-Request-Id"]) == 32
        assert "Idempotency-Key" in (await response.json())["message"]
        assert "max-age" in response.headers["Strict-Transport-Security"]


async def test_forwarded_address_of_the_client_is_ignored(open_site: OpenSite) -> None:
    site = await open_site(WRONG_KEYS_PER_MINUTE="1")
    statuses = []
    for number in range(6):
        headers = {"X-API-Key": "no", "X-Forwarded-For": f"203.0.113.{number}"}
        path = "/api/invoices"
        statuses.append((await request_json(site.client, "GET", path, headers=headers))[0])
    # Each of the two processes counts the one address on its own.
    assert sorted(statuses) in ([401, 401, *[429] * 4], [401, *[429] * 5])


async def test_operator_paths_are_hidden_in_every_encoding(site: Site) -> None:
    for path in ("/metrics", "/readyz"):
        lines = [f"{method} {target}" for target in spell(path) for method in ("GET", "HEAD")]
        answers = {line: await site.answer_to(f"{line} HTTP/1.1") for line in lines}
        assert [line for line in lines if answers[line][:13] != b"HTTP/1.1 404 "] == []
    answer = await site.answer_to("GET /%6detrics HTTP/1.1")
    assert answer.endswith(b'{"message":"No such endpoint.","code":"endpoint_not_found"}')


def spell(path: str) -> Iterator[str]:
    """Yield request targets that a server could take for a path."""
    name = path[1:]
    for first in (f"%{ord(name[0]):02x}", f"%{ord(name[0]):02X}", f"%25{ord(name[0]):02x}"):
        yield f"/{first}{name[1:]}"
    yield "/" + "".join(f"%{ord(letter):02x}" for letter in name)
    for before in (
        "/",
        "//",
        "/./",
        "/%2e/",
        "/x/../",
        "/api/%2e%2e/",
        "/x/%2E./",
        "/%2f",
        "/%2F/",
    ):
        yield f"{before}{name}"
    for after in ("", "/", "//", "/.", "/x/..", "/x/%2e%2e", "%2f", "?x", "?", "#x", "%3fx", "%23"):
        yield f"{path}{after}"
    for after in (";x", "%3bx", ".", "%20", "%09", "%0a", "\\", "%5c", "%e2%80%8b", ",", "&x", "*"):
        yield f"{path}{after}"
    yield from (path.upper(), path.title(), f"/x/..;{path}", f"/..%252f{name}")
    for prefix in ("/api", "/assets", "/shared", "/receipt/x", "/api/invoices/export-all"):
        yield f"{prefix}/{'../' * prefix.count('/')}{name}"
        yield f"{prefix}/{'..%2f' * prefix.count('/')}{name}"
        yield f"{prefix}/{'%252e%252e%252f' * prefix.count('/')}{name}"
    for scheme in ("http", "https"):
        yield f"{scheme}://{NAME}{path}"


@pytest.mark.parametrize(
    ("line", "fields", "status", "code"),
    [
        ("GET /%00", (), 400, "bad_request"),
        ("GET /metrics%00", (), 400, "bad_request"),
        ("GET /%zz", (), 400, "bad_request"),
        ("GET /../x", (), 400, "bad_request"),
        ("GET metrics", (), 400, "bad_request"),
        ("TRACE /", (), 405, "method_not_allowed"),
        ("POST /api/invoices", ("Transfer-Encoding: gzip, chunked",), 501, "bad_request"),
        ("GET /einvoice-error", (), 404, "endpoint_not_found"),
    ],
)
async def test_a_request_that_nginx_refuses_has_an_error_as_json(
    site: Site, line: str, fields: tuple[str, ...], status: int, code: str
) -> None:
    answer = await site.answer_to(f"{line} HTTP/1.1", *fields)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nX-Request-Id: " in head and b"\r\nContent-Type: application/json" in head
    assert json.loads(body)["code"] == code


async def test_another_name_than_that_of_the_handshake_has_no_answer(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET /sign-in HTTP/1.1\r\nHost: other.example\r\n\r\n")
    async with patience():
        assert await reader.read() == b""
    writer.close()


async def test_a_page_with_a_long_query_asks_to_sign_in(site: Site) -> None:
    """The head of the response has the query."""
    for length in (1_000, 7_000):
        path = f"/invoices?query={'a' * length}"
        async with site.client.get(path, allow_redirects=False) as response:
            assert response.status == 303
            assert response.headers["Location"].startswith("/sign-in")
            assert (length == 1_000) == ("next" in response.headers["Location"])


async def test_plain_http_redirects_pages_and_rejects_the_api(site: Site) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{site.nginx.plain_port}") as client:
        async with client.get("/invoices?page=2", allow_redirects=False) as response:
            assert response.status == 308
            assert response.headers["Location"] == f"https://{NAME}/invoices?page=2"
        async with client.get("/api/invoices", headers={"X-API-Key": site.key}) as response:
            assert response.status == 403 and "HTTPS" in (await response.json())["message"]


async def test_tls_is_refused_for_other_names(site: Site) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(
            "127.0.0.1", site.nginx.port, ssl=site.tls, server_hostname="other.example"
        )


async def test_body_limit_is_that_of_the_service(site: Site) -> None:
    """A body of the limit reaches the service, which finds that it is no invoice."""
    path = "/api/invoices"
    status, body = await request_json(site.client, "POST", path, json={"x": "y" * (MAX_BODY - 9)})
    assert status == 422 and body["errors"]

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY // 65536 + 1):
            yield b" " * 65536

    for data in (b" " * (MAX_BODY + 1), chunks()):
        body = await expect(site.client, 413, "POST", "/api/invoices", data=data)
        assert body["message"].endswith(f"limit of {MAX_BODY} bytes.")


async def test_cut_upload_does_not_reach_the_service(site: Site) -> None:
    text = json.dumps(invoice()).encode()
    for _ in range(5):
        _, writer = await site.connect()
        fields = ("Content-Type: application/json", f"Content-Length: {len(text)}")
        writer.write(site.head("POST /api/invoices HTTP/1.1", *fields) + text[:-1])
        await writer.drain()
        writer.transport.abort()
    await until(
        lambda: asyncio.to_thread(site.nginx.access_log),
        lambda log: len(re.findall('"method":"POST".*"status":"(?:400|499)"', log)) == 5,
    )
    assert "POST" not in "".join(process.output() for process in site.processes)
    status, body = await request_json(site.client, "GET", "/api/invoices")
    assert status == 200 and body["data"] == []


async def test_connections_of_one_address_are_limited(site: Site) -> None:
    opened = []
    for _ in range(50):
        reader, writer = await site.connect()
        writer.write(site.head("POST /api/invoices HTTP/1.1", "Content-Length: 100") + b" ")
        opened.append((reader, writer))
    _, body = await until(
        lambda: request_json(site.client, "GET", "/api/invoices"), lambda answer: answer[0] == 429
    )
    assert "connections" in body["message"]
    for _, writer in opened:
        writer.transport.abort()
    await until(
        lambda: request_json(site.client, "GET", "/api/invoices"), lambda answer: answer[0] == 200
    )


@pytest.mark.long
@pytest.mark.parametrize("is_head", [True, False], ids=["head", "body"])
async def test_slow_request_is_closed(site: Site, is_head: bool) -> None:
    reader, writer = await site.connect()
    head = site.head("POST /api/invoices HTTP/1.1", "Content-Length: 100")
    writer.write(head[:-2] if is_head else head + b"{")
    async with patience():
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    assert "POST" not in "".join(process.output() for process in site.processes)
    writer.close()


async def test_export_is_streamed_and_not_buffered(site: Site) -> None:
    """While a client reads slowly the export still runs, which only one at a time may."""
    lines = [line(id=str(number), description="x" * 300) for number in range(500)]
    for _ in range(150):  # more than the socket buffers of the machine hold
        await create_invoice(site.client, lineItems=lines)
    for process in site.processes[1:]:  # The limit is per process.
        assert await process.stop() == 0
    async with site.client.get("/api/invoices/export-all") as response:
        assert response.status == 200
        assert (await response.content.readexactly(1))[:1] == b"["
        status, body = await request_json(site.client, "GET", "/api/invoices/export-all")
        assert status == 429 and "already running" in body["message"]
        assert not any(path.is_file() for path in (site.nginx.home / "proxy").rglob("*"))
        async with patience():
            text = b"[" + await response.read()
    assert len(json.loads(text)) == 150 and len(text) > 16_000_000


@dataclass
class Load:
    """Clients that read, and clients that create with an Idempotency-Key and repeat."""

    site: Site
    reads: int = 0
    failed_reads: list[object] = field(default_factory=list)
    created: dict[str, int] = field(default_factory=dict)
    repeated: list[object] = field(default_factory=list)  # first tries that failed
    is_over: bool = False

    async def read(self) -> None:
        """Get lists until the end."""
        while not self.is_over:
            try:
                async with self.site.client.get("/api/invoices?per_page=1") as response:
                    await response.read()
                    if response.status != 200:
                        self.failed_reads.append(response.status)
            except aiohttp.ClientError as error:
                self.failed_reads.append(error)
            self.reads += 1

    async def create(self, writer: int) -> None:
        """Create invoices until the end, each until it is answered."""
        number = 0
        while not self.is_over:
            number += 1
            key = f"{writer}-{number}"
            self.created[key] = await self.store(key)

    async def store(self, key: str) -> int:
        """Create an invoice and return its id."""
        return (await self.post(key, "/api/invoices", invoice()))["data"]["id"]

    async def post(self, key: str, path: str, body: dict[str, Any]) -> Any:
        """Send a request, repeat it until it succeeds, and return the JSON of its response."""
        while (answer := await self._try_to_post(key, path, body)) is None:
            await asyncio.sleep(0.05)
        return answer

    async def _try_to_post(self, key: str, path: str, body: dict[str, Any]) -> Any:
        """Return the JSON, or None if the response was lost or the first request still runs."""
        headers = {"Idempotency-Key": key}
        try:
            async with self.site.client.post(path, json=body, headers=headers) as response:
                if response.status < 300:
                    return await response.json()
                self.repeated.append(response.status)
                assert response.status in {*UNAVAILABLE, 409}, await response.text()
        except aiohttp.ClientError as error:
            self.repeated.append(error)
        return None

    async def go_on(self) -> None:
        """Wait until more requests have succeeded."""
        reads, creates = self.reads, len(self.created)
        await wait_until(lambda: self.reads > reads + 50 and len(self.created) > creates + 20)

    async def run(self, disturb: Callable[[], Awaitable[None]]) -> None:
        """Run the clients while something is disturbed, and until each has gone on after it."""
        tasks = [asyncio.create_task(self.read()) for _ in range(8)]
        tasks += [asyncio.create_task(self.create(writer)) for writer in range(4)]
        await self.go_on()
        await disturb()
        await self.go_on()
        self.is_over = True
        async with patience():
            await asyncio.gather(*tasks)
        print(f"reads {self.reads}, creates {len(self.created)}, repeated {self.repeated}")


async def check_each_is_stored_once(site: Site, load: Load) -> None:
    """Check that each key has created one invoice, and that there are no others."""
    assert len(set(load.created.values())) == len(load.created)
    _, body = await request_json(site.client, "GET", "/api/invoices?per_page=1")
    assert body["meta"]["total"] == len(load.created)


async def restart_each(site: Site, load: Load) -> None:
    for process in site.processes:
        assert await process.stop() == 0
        await load.go_on()
        await process.start()


async def kill_one(site: Site, load: Load) -> None:
    await site.processes[0].kill()
    await load.go_on()
    await site.processes[0].start()


@pytest.mark.long
@pytest.mark.parametrize("disturb", [restart_each, kill_one])
async def test_a_restart_fails_no_read_and_loses_no_create(
    open_site: OpenSite, disturb: Callable[[Site, Load], Awaitable[None]]
) -> None:
    site = await open_site(REQUESTS_PER_MINUTE="0")
    load = Load(site)
    await load.run(lambda: disturb(site, load))
    assert load.failed_reads == []
    await check_each_is_stored_once(site, load)


@pytest.mark.long
async def test_reload_of_nginx_fails_no_request(open_site: OpenSite) -> None:
    site = await open_site(REQUESTS_PER_MINUTE="0")
    load = Load(site)

    async def reload_thrice() -> None:
        for _ in range(3):
            await site.nginx.reload()

    await load.run(reload_thrice)
    assert load.failed_reads == []
    assert [status for status in load.repeated if isinstance(status, int)] == []
    await check_each_is_stored_once(site, load)
