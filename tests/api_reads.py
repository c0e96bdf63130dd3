"""Reads of invoices and their documents, and waits for what they show."""

from typing import Any

import aiohttp
import asyncpg
import pytest

from service.db.statements import sql
from service.submission.sending.send import StoredRequest, build_request
from tests.api_requests import expect
from tests.conftest import AnyClient, until


async def get_json(api: AnyClient, path: str) -> Any:
    return await expect(api, 200, "GET", path)


async def get_invoice(api: AnyClient, invoice_id: int) -> dict[str, Any]:
    return await expect(api, 200, "GET", f"/api/invoices/{invoice_id}")


async def get_documents(api: AnyClient, invoice_id: int) -> list[dict[str, Any]]:
    """Return the submitted documents of an invoice, newest first."""
    return await expect(api, 200, "GET", f"/api/invoices/{invoice_id}/submitted-documents")


async def get_statuses(api: AnyClient, invoice_id: int) -> list[str]:
    """Return the statuses of the submitted documents of an invoice, newest first."""
    return [document["status"] for document in await get_documents(api, invoice_id)]


async def wait_for_events(api: AnyClient, least: int = 1, ending: str = "") -> list[Any]:
    """Return the events whose type has an ending, oldest first, as soon as there are `least`.

    The feed shows an event when no older transaction of any database runs on the server.
    """

    async def read() -> list[Any]:
        events = (await get_json(api, "/api/events?limit=100"))["data"]
        return [event for event in events if event["type"].endswith(ending)]

    return await until(read, lambda found: len(found) >= least)


async def wait_for_status(api: AnyClient, invoice_id: int, status: str) -> dict[str, Any]:
    """Return an invoice's record once it has the status. Fails at once after a final one."""
    ends = {"Valid", "Invalid", "Cancelled", "Draft", status}
    found = await until(lambda: get_invoice(api, invoice_id), lambda found: found["status"] in ends)
    assert found["status"] == status, (found["status"], await get_documents(api, invoice_id))
    return found


async def wait_until_status(api: AnyClient, invoice_id: int, *statuses: str) -> dict[str, Any]:
    """Return an invoice's record once it has one of the statuses, after any others."""
    return await until(
        lambda: get_invoice(api, invoice_id), lambda found: found["status"] in statuses
    )


async def fail_midway(
    response: aiohttp.ClientResponse, owner: asyncpg.Connection, name: str, size: int = 10_000
) -> None:
    """Check that a response is visibly incomplete if a relation disappears midway."""
    assert response.status == 200
    await response.content.readexactly(size)
    await owner.execute(f"alter table {name} rename to elsewhere")
    with pytest.raises(aiohttp.ClientError):
        await response.read()


async def wait_until_idle(owner: asyncpg.Connection) -> None:
    """Wait until the service has no open transaction."""
    busy = """
        select count(*) from pg_stat_activity
         where application_name like 'einvoice %'
           and datname = current_database() and xact_start is not null
    """
    await until(lambda: owner.fetchval(busy), lambda count: count == 0)


async def read_request(owner: asyncpg.Connection) -> tuple[str, StoredRequest]:
    """Return the taxpayer and the request of the latest submission that was not merged."""
    row = await owner.fetchrow(
        "select company_id, id, tin from submissions where state <> 'Merged' order by id desc"
    )
    assert row
    contents = await sql.submission_contents(owner, company_id=row["company_id"], ids=[row["id"]])
    return row["tin"], build_request(row["tin"], contents)


async def count_waiting(owner: asyncpg.Connection) -> int:
    """Return the number of statements that wait for a lock, also within a transaction."""
    await owner.execute("select pg_stat_clear_snapshot()")
    waiting = await owner.fetch(
        "select from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    return len(waiting)


async def wait_for_lock(owner: asyncpg.Connection, statements: int = 1) -> None:
    """Wait until so many statements of the service wait for a lock."""
    await until(lambda: count_waiting(owner), lambda found: found >= statements)
