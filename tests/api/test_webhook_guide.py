"""The guide of webhooks: its programs receive deliveries, and its tables agree with the code."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from service.webhooks import signature
from service.webhooks.dispatcher import RECORD_BYTES, SCHEDULE
from tests.api_invoices import create_invoice
from tests.api_requests import expect
from tests.conftest import Client, StartService
from tests.fixtures_webhooks import LOCAL, create_endpoint, wait_for_delivery
from tests.harness.paths import ROOT
from tests.harness.processes import free_port
from tests.harness.waiting import until

GUIDE = (ROOT / "docs" / "webhooks.md").read_text()
PACKAGES = ROOT / "tests" / "node" / "node_modules"
UNITS = {"s": "seconds", "min": "minutes", "h": "hours"}


@pytest.fixture
async def api(start: StartService) -> Client:
    return await start(**LOCAL)


def _read_program(language: str) -> str:
    """Return the only program of a language in the guide."""
    [program] = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return program


def _choose_interpreter(language: str) -> Sequence[str]:
    """Return the command of an interpreter. Skips the test if a part of it is not installed."""
    if language == "python":
        return [sys.executable]
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (PACKAGES / "standardwebhooks").exists():
        pytest.skip("standardwebhooks is not installed: npm install --prefix tests/node")
    return [node]


@asynccontextmanager
async def _run_program(language: str, port: int, secret: str, home: Path) -> AsyncIterator[Path]:
    """Run the program of the guide until the block ends, and yield the file of its output."""
    interpreter = _choose_interpreter(language)
    program, output = home / "receiver", home / "output"
    program.write_text(_read_program(language))
    environment = {
        **os.environ,
        "WEBHOOK_SECRET": secret,
        "PORT": str(port),
        "NODE_PATH": str(PACKAGES),
    }
    with output.open("wb") as out:
        process = subprocess.Popen([*interpreter, program], env=environment, stdout=out, stderr=out)
    try:
        await until(lambda: _listens(port, process, output))
        yield output
    finally:
        process.kill()
        process.wait()


async def _listens(port: int, process: subprocess.Popen[bytes], output: Path) -> bool:
    """Return whether a program accepts connections. Fails if it has ended."""
    assert process.poll() is None, output.read_text()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _send(url: str, body: str, headers: dict[str, str]) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body.encode(), headers=headers) as response,
    ):
        return response.status


@pytest.mark.parametrize("language", ["python", "js"])
async def test_the_program_of_the_guide_verifies_deliveries_and_ignores_duplicates(
    api: Client, tmp_path: Path, language: str
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    webhook, secret = await create_endpoint(api, url, include_record=True)
    async with _run_program(language, port, secret, tmp_path) as output:
        await create_invoice(api)
        delivery = await wait_for_delivery(api, webhook, "Delivered")
        again = f"/api/webhooks/{webhook}/deliveries/{delivery['id']}/redeliver"
        await expect(api, 200, "POST", again, json={})
        repeated = await wait_for_delivery(api, webhook, "Delivered")
        assert (repeated["attempts"], repeated["response_status"]) == (2, 204)
        [line] = [line for line in output.read_text().splitlines() if "evt_" in line]
        assert line.startswith(f"evt_{delivery['event_id']} invoice.created")


@pytest.mark.parametrize("language", ["python", "js"])
async def test_the_program_of_the_guide_rejects_forged_requests(
    tmp_path: Path, language: str
) -> None:
    port, key = free_port(), signature.new_secret()
    url = f"http://127.0.0.1:{port}/"
    async with _run_program(language, port, signature.shown(key), tmp_path) as output:
        now = int(time.time())
        signed = signature.headers(7, now, "{}", [key])
        for body, headers in (
            ("{ }", signed),
            ("{}", signature.headers(7, now, "{}", [signature.new_secret()])),
            ("{}", signature.headers(7, now - 301, "{}", [key])),
            ("{}", {**signed, "webhook-signature": "v1"}),
            ("{}", {**signed, "webhook-signature": "v1,!"}),
            ("{}", {}),
        ):
            assert await _send(url, body, headers) == 401, headers
        rotated = signature.headers(8, now, '{"type":"x","data":{}}', [signature.new_secret(), key])
        assert await _send(url, '{"type":"x","data":{}}', rotated) == 204
        assert [line for line in output.read_text().splitlines() if "evt_7" in line] == []


def test_the_guide_has_the_schedule_of_retries() -> None:
    [row] = re.findall(r"^\| Pause before it \|(.*)\|$", GUIDE, re.MULTILINE)
    pauses = [cell.split() for cell in row.split("|")]
    shown = [timedelta(**{UNITS[unit]: int(count)}) for count, unit in pauses]
    assert shown == list(SCHEDULE[1:])
    assert f"more than {RECORD_BYTES // 1024} kB together" in GUIDE
