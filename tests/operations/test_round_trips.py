"""The number of commands that a request sends to PostgreSQL: each takes a round trip.

These are counts, not times, so that they do not depend on the machine.
"""

import asyncio

import pytest

from service.db.statements import sql
from tests.api_invoices import create_invoice
from tests.api_requests import request_json
from tests.conftest import Client, StartService
from tests.harness.bodies import invoice

BEGIN, COMMIT = 1, 1
#: Path and number of commands of requests that read.
READS = {
    "/api/invoices/{id}": 1,
    "/api/invoices": 1,
    "/api/invoices?page=2&per_page=1": 1,
    "/api/invoices/{id}/export": 1,
    "/api/invoices/{id}/submitted-documents": 1,
    "/api/invoices/{id}/qr.png": 1,
    "/api/adjustment-notes": 1,
    "/api/consolidated-invoices": 1,
    "/api/einvoice-requests": 1,
    "/api/events": 1,
    "/api/webhooks": 1,
    "/api/invoices/export-all": 2,  # a batch, and one that is empty
}
#: Commands that depend on the time since the previous request: the look-up of the key, which is
#: cached, the check of an idle connection, the look for imported code lists, the checks of the
#: database's identity, the note of its time, and the looks of the watchdog.
OCCASIONAL = {
    sql.api_key_get.query,
    sql.database_now.query,
    sql.code_list_versions.query,
    sql.database_identity_get.query,
    sql.record_evidence.query,
    sql.note_clock.query,
    sql.conditions_watched.query,
}


@pytest.fixture
async def api(commands: list[str], start: StartService) -> Client:
    """A service without background work."""
    return await start(background=False)


async def count(
    api: Client, commands: list[str], method: str, path: str, body: object = None
) -> int:
    """Send a request and return the number of its commands."""
    commands.clear()
    async with api.request(method, path, json=body) as response:
        await response.read()
        assert response.status in (200, 201, 404)
    return count_regular(commands)


def count_regular(commands: list[str]) -> int:
    """Return the number of commands that each such request sends."""
    return sum(command not in OCCASIONAL for command in commands)


async def test_requests_that_read_send_one_command(api: Client, commands: list[str]) -> None:
    invoice_id = await create_invoice(api)
    found = {path: await count(api, commands, "GET", path.format(id=invoice_id)) for path in READS}
    assert found == READS


async def test_creating_an_invoice_sends_one_command(api: Client, commands: list[str]) -> None:
    assert await count(api, commands, "POST", "/api/invoices", invoice()) == 1


async def test_creating_an_invoice_that_may_be_submitted_is_one_transaction(
    api: Client, commands: list[str]
) -> None:
    sent = await count(api, commands, "POST", "/api/invoices", invoice(isReady=True))
    assert sent == BEGIN + len(["insert", "setting of the company"]) + COMMIT


async def test_checking_a_code_sends_one_command(api: Client, commands: list[str]) -> None:
    path, body = "/api/validation/invoice-code", {"invoice_code": 5}
    assert await count(api, commands, "POST", path, body) == 1


async def test_concurrent_requests_share_no_command(api: Client, commands: list[str]) -> None:
    """Each request runs its own statement, so that no client gets the answer of another."""
    invoice_id = await create_invoice(api)
    paths = [f"/api/invoices/{invoice_id}", "/api/invoices?per_page=5"] * 10
    commands.clear()
    await asyncio.gather(
        *(request_json(api, "GET", path) for path in paths), *(create_invoice(api) for _ in paths)
    )
    assert count_regular(commands) == 2 * len(paths)
