"""The watchdog reports overdue work independently of the worker."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from service.http import app_keys
from service.monitoring.event_loop import EventLoopMonitor
from service.monitoring.metrics import REGISTRY
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_documents, wait_for_status
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.companies import AUTOMATIC
from tests.harness.processes import ChildProcess
from tests.operations.test_metrics import get_metrics

IMPATIENT = {"WATCHDOG_SECONDS": "0.1", "OVERDUE_SECONDS": "0.2"}


async def get_readiness(api: Client) -> dict[str, Any]:
    return await expect(api, 200, "GET", "/readyz")


async def count_conditions(api: Client) -> dict[str, int]:
    return {each["kind"]: each["n"] for each in (await get_readiness(api))["conditions"]}


async def wait_until_overdue(api: Client, kind: str) -> dict[str, Any]:
    """Wait until a kind of work is overdue, and return the readiness."""
    return await until(lambda: get_readiness(api), lambda body: kind in body["reasons"])


async def test_unclaimed_work_is_overdue(
    start: StartService, owner: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await owner.execute(AUTOMATIC)
    api = await start(background=False, **IMPATIENT)
    app: Any = api.app
    await until(lambda: asyncio.sleep(0, app[app_keys.WATCHDOG].rows))
    assert (await get_readiness(api))["status"] == "ok"
    await create_invoice(api, isReady=True)
    body = await wait_until_overdue(api, "Queued")
    (shown,) = body["conditions"]
    assert body["status"] == "degraded" and body["reasons"] == ["Queued"]
    assert (shown["kind"], shown["n"]) == ("Queued", 1) and shown["since"]
    assert any("condition=Queued 1 submissions" in line for line in caplog.messages)
    shown = await get_metrics(api)
    assert shown['einvoice_overdue{kind="Queued"}'] == 1
    assert shown['einvoice_submissions{state="Queued"}'] == 1
    assert shown['einvoice_condition_seconds{kind="Queued"}'] > 0.2
    await owner.execute("update submissions set not_before = now() + interval '1 hour'")
    given = await until(lambda: get_readiness(api), lambda body: not body["reasons"])
    assert given["status"] == "ok"


async def test_a_worker_without_turns_is_overdue(start: StartService) -> None:
    """The limit is shorter than the interval between two turns."""
    api = await start(WATCHDOG_SECONDS="0.1", OVERDUE_SECONDS="0.001")
    await wait_until_overdue(api, "Worker")


async def test_every_kind_of_stuck_work_is_named(
    start: StartService, owner: asyncpg.Connection
) -> None:
    """Each kind has a row in the state in which a crashed worker leaves it."""
    api = await start(**{**IMPATIENT, "COMPARISON_SECONDS": "0.01"})
    for _ in range(3):
        invoice_id = await create_valid_invoice(api)
    idle = await start(background=False, **{**IMPATIENT, "COMPARISON_SECONDS": "0.01"})
    await api.close()
    past = "now() - interval '1 hour'"
    for invoice_id, state in enumerate(("Sending", "Uncertain", "Accepted"), 1):
        await owner.execute(
            f"""update submissions
                   set state = $2, not_before = {past}, lease_until = {past}, last_sent_at = {past}
                 where id = $1""",
            invoice_id,
            state,
        )
    await owner.execute(f"update submitted_documents set cancelling_until = {past} where id = 1")
    await owner.execute(f"update comparisons set compared_at = {past}")
    await owner.execute(
        "insert into webhook_endpoints (company_id, url)"
        " select id, 'https://x.example' from companies"
    )
    await owner.execute(
        f"""insert into webhook_deliveries (company_id, endpoint_id, event_id, next_attempt_at)
            select w.company_id, w.id, (select min(id) from events), {past}
              from webhook_endpoints w"""
    )
    kinds = {"Sending", "Uncertain", "Accepted", "Cancellation", "Comparison", "Delivery"}
    await until(lambda: get_readiness(idle), lambda body: set(body["reasons"]) == kinds)


async def test_a_cancellation_is_overdue_after_its_settling_time(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """The cancellation is claimed repeatedly meanwhile, so that its claim never expires."""
    api = await start(**{**IMPATIENT, "OVERDUE_SECONDS": "30", "PORTAL_SETTLE_SECONDS": "600"})
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("state", "drop", times=2)
    assert (await cancel_latest(api, invoice_id))[0] == 400
    await until(sandbox.calls, lambda calls: calls["calls"]["details"] >= 3)
    assert (await get_readiness(api))["reasons"] == []
    await sandbox.fault("details", "error_before", status=503, times=1000)

    async def age() -> dict[str, Any]:
        """Repeat the update, because a poll that began earlier overwrites the time."""
        await owner.execute(
            "update submitted_documents set cancel_sent_by = now() - interval '11 minutes'"
        )
        return await get_readiness(api)

    await until(age, lambda body: body["reasons"] == ["Cancellation"])


async def test_manual_reviews_are_counted_and_keep_the_service_ready(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(background=False, **IMPATIENT)
    assert (await submit(api, invoice_id := await create_invoice(api)))[0] == 200
    await owner.execute("update submissions set state = 'NeedsPerson'")
    await until(lambda: count_conditions(api), lambda found: found == {"NeedsPerson": 1})
    assert (await get_readiness(api))["status"] == "ok"
    assert (await get_metrics(api))['einvoice_attention{kind="NeedsPerson"}'] == 1
    assert (await get_documents(api, invoice_id))[0]["status"] == "Submitted"


async def test_work_of_a_killed_worker_process_is_overdue(
    start: StartService, owner: asyncpg.Connection, environment: dict[str, str], tmp_path: Path
) -> None:
    await owner.execute(AUTOMATIC)
    api = await start(background=False, **{**IMPATIENT, "OVERDUE_SECONDS": "1"})
    worker = ChildProcess(["worker"], environment, tmp_path / "worker.log")
    await worker.start()
    try:
        await wait_for_status(api, await create_invoice(api, isReady=True), "Valid")
        assert (await get_readiness(api))["reasons"] == []
    finally:
        await worker.kill()
    await create_invoice(api, isReady=True)
    await wait_until_overdue(api, "Queued")


async def test_the_watchdog_reconnects_after_its_session_was_terminated(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(background=False, **IMPATIENT)
    await owner.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and datname = current_database()"
    )
    await until(lambda: request_json(api, "GET", "/readyz"), lambda answer: answer[0] == 200)
    await create_submitted_invoice(api)
    await owner.execute("update submissions set state = 'NeedsPerson'")
    await until(lambda: count_conditions(api), lambda found: found == {"NeedsPerson": 1})


def _get_lag() -> float:
    """Return the sum of the delays that were measured."""
    return REGISTRY.get_sample_value("einvoice_event_loop_lag_seconds_sum") or 0


async def test_a_blocked_event_loop_is_logged_with_its_location(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = EventLoopMonitor(seconds=0.1)
    warnings: list[logging.LogRecord] = []
    before = _get_lag()
    with guard.running():
        for _ in range(600):
            time.sleep(0.1)  # blocks the event loop
            if warnings := [
                record for record in caplog.records if "has been blocked" in record.message
            ]:
                break
        await until(lambda: asyncio.sleep(0, _get_lag() > before))
    assert "blocked" in warnings[0].message and warnings[0].levelno == logging.WARNING
