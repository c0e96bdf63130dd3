"""Logs of a process at level DEBUG: no secrets, bodies or personal data."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from tests.api.test_edge import BROKEN
from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_requests import (
    CERTIFICATE,
    INTEGRATIONS,
    OWN_CLIENT,
    PORTAL_CREDENTIALS,
    add_own_client,
    cancel_latest,
    expect,
    make_account,
    request_json,
    submit,
)
from tests.conftest import Company, Sandbox, until
from tests.harness.bodies import buyer, invoice
from tests.harness.certificates import issued, key_text
from tests.harness.environments import GENEROUS
from tests.harness.processes import Service

#: Personal data in bodies, and a word that clients put into every kind of input.
PERSON = {
    "name": "Zarina Quux",
    "contactNumber": "+60123450987",
    "email": "zarina.quux@example.com",
}
SAID = "marzipan"
PASSWORD = "opensesame-4711"


@pytest.fixture
async def service(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    environment = {**environment, **GENEROUS, "LOG_LEVEL": "DEBUG", "WRONG_KEYS_PER_MINUTE": "3"}
    async with Service(environment, tmp_path / "service.log") as process:
        yield process


async def test_logs_hold_no_secrets_bodies_or_personal_data(
    service: Service,
    environment: dict[str, str],
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    tmp_path: Path,
) -> None:
    integration = (await make_account(environment)).key
    headers = {"X-API-Key": company.key, "X-Portal-Key": integration}
    async with aiohttp.ClientSession(service.base, headers=headers) as api:
        secrets = [
            *await _succeed(api),
            *await _use_own_client(api, sandbox),
            *await _fail(api, owner, sandbox),
            *[key.split("_")[3] for key in (company.key, integration)],
        ]
    for sent in BROKEN.values():
        await _raw(service.port, sent.replace(b"%s", company.key.encode()))
    limits = Path(f"/proc/{service.pid}/limits").read_text()
    assert "Max core file size        0                    0" in limits
    assert await service.stop() == 0
    output = service.output()
    assert output.count("request_id=") > 30 and " failed" in output
    secrets += [*_texts(environment), *_tokens(tmp_path / "sandbox.sqlite3")]
    assert [secret for secret in secrets if secret in output] == []
    assert [
        line for line in output.splitlines() if SAID in line.lower() or "quux" in line.lower()
    ] == []


async def _succeed(api: aiohttp.ClientSession) -> list[str]:
    """Send successful requests and return their secrets."""
    body = {"url": f"http://127.0.0.1:9/{SAID}"}
    webhook = (await request_json(api, "POST", "/api/webhooks", json=body))[1]["data"]
    rotated = (
        await request_json(api, "POST", f"/api/webhooks/{webhook['id']}/rotate-secret", json={})
    )[1]["data"]
    invoice_id = await create_submitted_invoice(api, buyer=buyer(**PERSON))
    assert (await cancel_latest(api, invoice_id, reason=SAID))[0] == 200
    signer = issued()
    pair = {
        "certificate": signer.certificate_pem,
        "key": key_text(signer.key, PASSWORD),
        "password": PASSWORD,
    }
    await expect(api, 200, "PUT", CERTIFICATE, json=pair)
    person = {"name": PERSON["name"], "email": PERSON["email"], "role": "member"}
    await expect(api, 201, "POST", f"{INTEGRATIONS}users", json=person)
    for path in (
        "/api/invoices?query=Zarina",
        "/api/invoices/export-all",
        f"/api/invoices/{invoice_id}/print",
        "/api/companies",
    ):
        async with api.get(path) as response:
            assert response.status == 200
    path = f"/api/webhooks/{webhook['id']}/deliveries"
    await until(
        lambda: request_json(api, "GET", path),
        lambda answer: any(one["attempts"] for one in answer[1]["data"]),
    )
    return [
        webhook["secret"],
        rotated["secret"],
        PASSWORD,
        *[line for line in pair["key"].splitlines() if len(line) == 64],
    ]


async def _use_own_client(api: aiohttp.ClientSession, sandbox: Sandbox) -> list[str]:
    """Use portal credentials that the portal accepts and refuses, and return their secrets."""
    await add_own_client(sandbox)
    for secret, status in ((OWN_CLIENT["client_secret"], 200), ("refused-secret-4711", 400)):
        body = {**OWN_CLIENT, "client_secret": secret}
        await expect(api, status, "PUT", PORTAL_CREDENTIALS, json=body)
    await create_submitted_invoice(api)
    return [OWN_CLIENT["client_secret"], "refused-secret-4711"]


async def _fail(
    api: aiohttp.ClientSession, owner: asyncpg.Connection, sandbox: Sandbox
) -> list[str]:
    """Send requests that fail in different ways, one with the row in PostgreSQL's error detail."""
    await owner.execute("alter table documents add constraint none_of_it check (code <> 777777)")
    for body in (
        invoice(buyer=buyer(**PERSON), code=777777),
        invoice(code=8, buyer=buyer(**PERSON), nothing=SAID),
    ):
        await request_json(api, "POST", "/api/invoices", json=body)
    await request_json(
        api, "POST", "/api/invoices", json=invoice(code=1, buyer={**buyer(**PERSON), "state": SAID})
    )
    for raw in (
        b'{"buyer": "Zarina Quux" marzipan',
        b"\xff" + SAID.encode(),
        json.dumps({"a\0": SAID}).encode(),
    ):
        for content_type in ("application/json", "text/plain"):
            headers = {"Content-Type": content_type}
            await request_json(api, "POST", "/api/invoices", data=raw, headers=headers)
    wrong = f"einv_live_{'A' * 12}_{SAID * 5}{SAID[:3]}000000"
    for key in (wrong, SAID, wrong, wrong, wrong):
        await request_json(api, "GET", "/api/invoices", headers={"X-API-Key": key})
    for path in (
        f"/api/invoices?api_key={wrong}",
        f"/api/{SAID}",
        f"/api/invoices/{SAID}",
        f"/api/invoices?status={SAID}",
    ):
        await request_json(api, "GET", path)
    await request_json(api, "GET", f"/api/invoices?query={SAID}%00")
    for name in ("X-Request-Id", "If-None-Match", "Idempotency-Key", "Cookie", "Authorization"):
        await request_json(
            api, "POST", "/api/invoices", json={"a": 1}, headers={name: f"{SAID} \u00fc"}
        )
    for kind in ("error_before", "html", "truncate", "accept_then_drop"):
        await sandbox.fault("submit", kind)
        await submit(api, await create_invoice(api, buyer=buyer(**PERSON)))
    return [wrong]


async def _raw(port: int, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    assert b" 400 " in await asyncio.wait_for(reader.read(), 5)
    writer.close()


def _texts(environment: dict[str, str]) -> list[str]:
    """Return the secrets of a configuration, as text and as printed bytes."""
    raw = base64.b64decode(GENEROUS["SECRET_KEY"])
    password = urlsplit(environment["DATABASE_URL"]).password or ""
    return [environment["PORTAL_CLIENT_SECRET"], password, GENEROUS["SECRET_KEY"], repr(raw)[2:-1]]


def _tokens(state: Path) -> list[str]:
    """Return every token that the sandbox issued."""
    found = [token for (token,) in sqlite3.connect(state).execute("select token from tokens")]
    assert found
    return found
