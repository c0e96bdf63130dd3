"""Log lines: the request and its trace, the client, JSON, and the first and last line."""

import asyncio
import base64
import json
import logging
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from service.config import KEY, SECRET, SETTINGS, describe_settings, read_config
from service.logs import read_trace_id
from service.version import VERSION
from tests.api_invoices import create_submitted_invoice
from tests.api_requests import expect, request_json
from tests.conftest import Client, Company, StartService, until
from tests.fixtures_service import RunCommand
from tests.harness.bodies import invoice
from tests.harness.environments import make_environment
from tests.harness.paths import ROOT
from tests.harness.processes import ChildProcess, Service

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SENT = {"traceparent": TRACEPARENT, "X-Request-Id": "order-7"}


def read_lines(output: str) -> list[dict[str, Any]]:
    """Return the log lines, each of which must be a JSON object."""
    return [json.loads(line) for line in output.splitlines()]


# The request and its trace


@pytest.mark.parametrize(
    "header, trace",
    [
        (TRACEPARENT, TRACE),
        (f"{TRACEPARENT}-more", ""),  # Version 00 has four parts.
        (f"cc{TRACEPARENT[2:]}-more", TRACE),
        (f"ff{TRACEPARENT[2:]}", ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (TRACEPARENT.upper(), ""),
        ("marzipan", ""),
        (None, ""),
    ],
)
def test_trace_id_is_read_from_a_valid_traceparent(header: str | None, trace: str) -> None:
    assert read_trace_id(header) == trace


async def test_trace_id_is_in_the_lines_of_a_request_and_of_its_submission(
    environment: dict[str, str], company: Company, tmp_path: Path
) -> None:
    variables = {**environment, "LOG_LEVEL": "INFO"}
    async with (
        Service(variables, tmp_path / "log") as service,
        aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key, **SENT}) as api,
    ):
        await create_submitted_invoice(api)
        output = await service.printed("route=/api/invoices/{id}/submit-to-portal")
    found = [line for line in output.splitlines() if f"trace_id={TRACE}" in line]
    for part in ("portal operation=submit status=202", "state=Accepted", "status=201"):
        (line,) = [line for line in found if part in line]
        assert "request_id=order-7" in line
    assert not any("operation=submission" in line for line in found)  # A poll of the worker.


async def test_unexpected_error_of_a_request_has_its_ids(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await owner.execute("alter table documents add constraint none_of_it check (code <> 7)")
    async with (
        Service(environment, tmp_path / "log") as service,
        aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key, **SENT}) as api,
    ):
        await expect(api, 500, "POST", "/api/invoices", json=invoice(code=7))
        output = await service.printed("CheckViolationError")
    (line,) = [line for line in output.splitlines() if line.endswith(" failed")]
    assert f"request_id=order-7 trace_id={TRACE} failed" in line


# The client and the key


@pytest.mark.parametrize(
    "trusted, forwarded, client",
    [
        ("", "203.0.113.5", "127.0.0.1"),
        ("127.0.0.1", "203.0.113.66, 203.0.113.5", "203.0.113.5"),
        ("127.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("127.0.0.1", "fe80::1%eth0", "fe80::1"),
        ("127.0.0.1", "x" * 200, "127.0.0.1"),
    ],
)
async def test_log_and_audit_entry_have_the_address_of_the_client(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    trusted: str,
    forwarded: str,
    client: str,
) -> None:
    caplog.set_level(logging.INFO, "service.requests")
    api = await start(background=False, TRUSTED_PROXIES=trusted, LOG_FORMAT="json")
    headers = {"X-Forwarded-For": forwarded, **SENT}
    answer = await request_json(api, "PUT", "/api/companies", json={"city": "A"}, headers=headers)
    assert answer[0] == 200
    change = "select host(client_address) from audit_log where action = 'change'"
    assert await owner.fetchval(change) == client
    printed = await until(lambda: asyncio.sleep(0, capsys.readouterr().err))
    (line,) = read_lines(printed)
    assert {name: line[name] for name in ("client", "key", "company", "trace_id", "status")} == {
        "client": client,
        "key": company.key_id,
        "company": company.id,
        "trace_id": TRACE,
        "status": 200,
    }


async def test_audit_command_shows_the_address_of_the_client(
    idle: Client, company: Company, command: RunCommand
) -> None:
    await expect(idle, 200, "PUT", "/api/companies", json={"city": "A"})
    entries = read_lines((await command("audit", "--company", company.id)).out)
    assert [entry["client_address"] for entry in entries][-2:] == [None, "127.0.0.1"]


# JSON


async def test_json_log_has_an_object_in_each_line(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await owner.execute("alter table documents add constraint none_of_it check (code <> 7)")
    variables = {**environment, "LOG_LEVEL": "INFO", "LOG_FORMAT": "json"}
    async with Service(variables, tmp_path / "log") as service:
        headers = {"X-API-Key": company.key, **SENT}
        async with aiohttp.ClientSession(service.base, headers=headers) as api:
            await create_submitted_invoice(api)
            await expect(api, 500, "POST", "/api/invoices", json=invoice(code=7))
        assert await service.stop() == 0
        lines = read_lines(service.output())
    first, *_, last = lines
    assert (first["message"], first["version"], first["command"]) == ("start", VERSION, "serve")
    assert first["settings"]["PORT"] == str(service.port)
    assert (last["message"], last["reason"]) == ("stop", "SIGTERM") and last["uptime_seconds"] > 0
    (failed,) = [line for line in lines if line["message"].startswith("failed\n")]
    assert failed["level"] == "ERROR" and failed["trace_id"] == TRACE
    statuses = {line["status"] for line in lines if line["message"] == "request"}
    assert {200, 201, 500} <= statuses
    assert {line["time"][-1] for line in lines} == {"Z"}


UNCAUGHT = """
import asyncio, threading, warnings
from service import logs
logs.configure("INFO", "json")
warnings.warn("one")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
async def main():
    asyncio.get_running_loop().call_soon(lambda: {}["two"])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
asyncio.run(main())
raise RuntimeError("three\\nlines")
"""


def test_json_log_has_uncaught_errors_and_warnings() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCAUGHT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    warning, in_thread, in_loop, uncaught = read_lines(done.stderr)
    assert "one" in warning["message"] and warning["logger"] == "py.warnings"
    assert "ZeroDivisionError" in in_thread["error"] and in_thread["level"] == "CRITICAL"
    assert "KeyError" in in_loop["error"] and in_loop["logger"] == "asyncio"
    assert uncaught["error"].endswith("RuntimeError: three\nlines")


async def test_json_log_has_the_error_that_prevents_a_start(command: RunCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = await command("worker", WORKER_PORT=port, LOG_FORMAT="json", LOG_LEVEL="INFO")
    assert done.code == 1
    _, stopped, error = read_lines(done.err)
    assert stopped["reason"] == "OperatorError"
    assert error["message"] == (
        f"Cannot listen on 127.0.0.1:{port}: another program uses it. Stop that program, or set "
        "WORKER_PORT to another port."
    )


# The first and the last line


async def test_first_and_last_line_have_version_and_settings(
    environment: dict[str, str], tmp_path: Path
) -> None:
    variables = {**environment, "LOG_LEVEL": "INFO"}
    async with ChildProcess(["worker"], variables, tmp_path / "log") as worker:
        await worker.printed("The worker is running.")
        assert await worker.stop() == 0
        first, *_, last = worker.output().splitlines()
    for line in (first, last):
        assert f" version={VERSION} command=worker " in line
        assert " PORTAL_POLL_SECONDS=0.05 " in line and "DATABASE_URL=postgresql://***@" in line
        assert environment["PORTAL_CLIENT_SECRET"] not in line
    assert " start " in first and " stop " in last and "reason=SIGTERM uptime_seconds=" in last


def test_settings_in_the_log_have_addresses_and_changes_only() -> None:
    assert describe_settings(read_config({})) == {
        "HOST": "127.0.0.1",
        "PORT": "8080",
        "WORKER_PORT": "0",
        "PUBLIC_URL": "http://127.0.0.1:8080",
        "TIN_VERIFICATION": "automatic",
    }
    changed = {
        "TRUSTED_PROXIES": "10.0.0.0/24,::1/128",
        "PORTAL_INTERMEDIARY": "true",
        "PORTAL_POLL_SECONDS": "0.5",
        "TIN_VERIFICATION": "operator",
        "LOG_LEVEL": "INFO",  # the default
    }
    shown = describe_settings(read_config(changed))
    assert {name: shown.get(name) for name in changed} == {**changed, "LOG_LEVEL": None}


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:hush@db:5432/x?password=hush", "postgresql://***@db:5432/x"),
        ("postgresql://me:12/hush@db/x", "***"),
        ("postgresql://db,db2/x?password=hush%40a", "postgresql://db,db2/x"),
        ("postgresql:///x?user=me&password=hu@sh", "***"),
    ],
)
def test_settings_in_the_log_mask_the_login_of_a_url(url: str, shown: str) -> None:
    assert describe_settings(read_config({"DATABASE_URL": url}))["DATABASE_URL"] == shown


@pytest.mark.parametrize(
    "host, address",
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("a.test", "a.test")],
)
def test_the_default_public_url_is_the_listening_address(host: str, address: str) -> None:
    assert read_config({"HOST": host, "PORT": "8081"}).public_url == f"http://{address}:8081"


def test_settings_in_the_log_mask_every_secret() -> None:
    environment = {**make_environment("postgresql://me:hush@db/x", "https://portal.example")}
    for setting in SETTINGS.values():
        if setting.parser is SECRET:
            environment[setting.variable] = "hush"
        if setting.parser is KEY:
            environment[setting.variable] = base64.b64encode(b"k" * 32).decode()
    shown = describe_settings(read_config(environment))
    assert "hush" not in str(shown) and "kkkk" not in str(shown) and "a2tr" not in str(shown)
    assert {shown[name] for name in ("SECRET_KEY", "PORTAL_CLIENT_SECRET")} == {"***"}
