"""Rotation of keys with the blocks of docs/key-rotation.md, under load behind nginx."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import expect, request_json
from tests.conftest import Company, Sandbox, until
from tests.deployment.test_nginx import Load, Site, check_each_is_stored_once, enter_site
from tests.documents.test_signing import get_sent_document, signed_by
from tests.fixtures_webhooks import LOCAL, Receiver, create_endpoint, list_deliveries
from tests.harness.certificates import issued, rsa_key
from tests.harness.environments import SANDBOX_CLIENT
from tests.harness.installation import API_UNITS, WORKER_UNIT, Installation, read_blocks
from tests.harness.nginx import needs_nginx
from tests.harness.signatures import is_signed_by

pytestmark = [pytest.mark.long, needs_nginx]

PAGE = Path(__file__).parents[2] / "docs" / "key-rotation.md"
BLOCKS = read_blocks("docs/key-rotation.md")
#: The first block, before the first heading.
HELPERS = PAGE.read_text().partition("```sh\n")[2].partition("```")[0]
#: Replaces a program that a person uses.
EDITOR = 'editor() { printf %s "$NEW_SECRET" > "$1"; }\n'
SETTINGS = {
    "PORTAL_DOCUMENT_VERSION": "1.1",
    "REQUESTS_PER_MINUTE": "0",
    "WEBHOOK_ALLOW_INTERNAL": LOCAL["WEBHOOK_ALLOW_INTERNAL"],
}


class Rotation:
    """An installation behind nginx, whose company signs documents and has a webhook."""

    def __init__(self, installation: Installation, site: Site, company: Company) -> None:
        self.installation, self.site, self.company = installation, site, company

    async def paste(self, *blocks: str, **variables: str) -> str:
        """Run blocks of the page."""
        script = "\n".join([EDITOR, HELPERS, *blocks])
        script = script.replace("/etc/einvoice", str(self.installation.etc))
        return await self.installation.paste(
            script, COMPANY=str(self.company.id), KEY=self.company.key, **variables
        )

    async def set_certificate(self, key: str) -> bytes:
        """Replace the certificate of the company by one of a new key, and return it."""
        made = issued(key=rsa_key(key))
        secrets = self.installation.etc / "secrets"
        (secrets / "certificate.pem").write_text(made.certificate_pem)
        (secrets / "key.pem").write_text(made.key_pem)
        await self.paste(*BLOCKS["Signing certificates"])
        assert not (secrets / "key.pem").exists()
        return made.der

    async def run_under_load(self, *blocks: str, **variables: str) -> Load:
        """Run blocks while clients read and create. No request may fail."""
        load = Load(self.site)

        async def rotate() -> None:
            for block in blocks:
                await self.paste(block, **variables)

        await load.run(rotate)
        assert load.failed_reads == [] and load.repeated == []
        return load

    def read_logs(self) -> str:
        """Return what the units have logged."""
        units = (*API_UNITS, WORKER_UNIT)
        return "".join(self.installation.unit(unit).output() for unit in units)


@pytest.fixture
async def rotation(tmp_path: Path, sandbox: Sandbox) -> AsyncIterator[Rotation]:
    """Yield a rotation on an installation of its own."""
    async with (
        Installation(tmp_path, sandbox.base, SETTINGS) as installation,
        AsyncExitStack() as stack,
    ):
        company = await installation.add_company()
        processes = [installation.unit(unit) for unit in API_UNITS]
        site = await enter_site(stack, processes, tmp_path / "nginx", company)
        yield Rotation(installation, site, company)


async def test_secret_key_is_replaced_under_load(rotation: Rotation, receiver: Receiver) -> None:
    """Each process encrypts what another one decrypts, in every step."""
    installation, client = rotation.installation, rotation.site.client
    await rotation.set_certificate("first")
    webhook_id, _ = await create_endpoint(client, receiver.url, types=["invoice.created"])
    old = installation.read_secret("secret-key")
    is_over = False

    async def rotate_secrets() -> None:
        while not is_over:
            path = f"/api/webhooks/{webhook_id}/rotate-secret"
            await expect(client, 200, "POST", path, json={})

    changing = asyncio.create_task(rotate_secrets())
    load = await rotation.run_under_load(*BLOCKS["SECRET_KEY"])
    is_over = True
    await changing
    assert json.loads(await rotation.paste("einvoice reseal")) == {"sealed": 0, "unopenable": 0}
    assert installation.read_secret("secret-key") != old
    assert installation.read_secret("secret-key-previous") == ""
    await receiver.gets(len(load.created))
    attempts = [one["attempts"] for one in await list_deliveries(client, webhook_id)]
    assert set(attempts) == {1} and "decrypt" not in rotation.read_logs()
    await create_valid_invoice(client)


async def test_database_passwords_are_replaced_under_load(rotation: Rotation) -> None:
    installation = rotation.installation
    before = [installation.read_secret(name) for name in ("database-url", "database-owner-url")]
    load = await rotation.run_under_load(*BLOCKS["Database passwords"])
    after = [installation.read_secret(name) for name in ("database-url", "database-owner-url")]
    assert all(new != old for new, old in zip(after, before, strict=True))
    await check_each_is_stored_once(rotation.site, load)
    conn = await installation.connect()
    roles = await conn.fetch("select rolname from pg_roles where rolname like 'einvoice_app%'")
    await conn.close()
    assert [row["rolname"] in after[0] for row in roles] == [True]


async def test_api_key_is_replaced(rotation: Rotation) -> None:
    client = rotation.site.client
    create, revoke = BLOCKS["API keys"][1].splitlines()
    new_key = json.loads(await rotation.paste(create))["key"]
    headers = {"X-API-Key": new_key}
    await expect(client, 200, "GET", "/api/invoices", headers=headers)
    await rotation.paste(revoke, KEY_ID=rotation.company.key_id)
    await until(lambda: request_json(client, "GET", "/api/invoices"), lambda got: got[0] == 401)
    await expect(client, 200, "GET", "/api/invoices", headers=headers)


async def test_portal_client_secret_is_replaced(rotation: Rotation, sandbox: Sandbox) -> None:
    client = rotation.site.client
    await rotation.set_certificate("first")
    await create_valid_invoice(client)
    changed = {"client_id": SANDBOX_CLIENT["PORTAL_CLIENT_ID"], "client_secret": "new-secret"}
    await sandbox.send("POST", "clients", {**changed, "tin": "C25845632020", "intermediary": True})
    await rotation.paste(*BLOCKS["Portal client secret"], NEW_SECRET="new-secret")
    await create_valid_invoice(client)
    found = await rotation.installation.paste("einvoice attention")
    assert json.loads(found)["refused_logins"] == []


async def test_signing_certificate_is_replaced(rotation: Rotation) -> None:
    client = rotation.site.client
    conn = await rotation.installation.connect()
    for name in ("first", "second"):
        certificate = await rotation.set_certificate(name)
        await create_valid_invoice(client)
        assert signed_by((await get_sent_document(conn))[1]) == certificate
    await conn.close()


async def test_webhook_secret_is_replaced(rotation: Rotation, receiver: Receiver) -> None:
    client = rotation.site.client
    webhook_id, old = await create_endpoint(client, receiver.url)
    api = f"http://127.0.0.1:{rotation.installation.ports[API_UNITS[0]]}"
    [block] = BLOCKS["Webhook secrets"]
    answer: dict[str, Any] = json.loads(
        await rotation.paste(block, API=api, WEBHOOK=str(webhook_id))
    )
    await create_invoice(client)
    [(headers, body)] = await receiver.gets(1)
    assert all(is_signed_by(headers, body, key) for key in (old, answer["data"]["secret"]))
