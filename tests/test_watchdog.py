"""What is older than it should be is said by somebody who is not the one that should have done it."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from typing import Any

from conftest import until
from kit import answered, created, documents, reaches, submitted
from processes import ROOT

from service.monitoring.watchdog import EventLoopMonitor

IMPATIENT = {"WATCHDOG_SECONDS": "0.1", "OVERDUE_SECONDS": "0.2"}
AUTOMATIC = """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""


async def readiness(api):
    status, body = await answered(api, "GET", "/readyz")
    assert status == 200, body
    return body


async def overdue(api, kind):
    """What /readyz says once something of a kind is overdue."""
    return await until(lambda: readiness(api), lambda body: kind in body["overdue"])


async def figures(api):
    async with api.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


async def test_work_that_nobody_takes_up_is_overdue_within_a_look(start, company, owner, caplog):
    await owner.execute(AUTOMATIC)
    api = await start(company, background=False, **IMPATIENT)
    assert (await until(lambda: readiness(api), lambda body: body["needs_person"] == 0))[
        "status"
    ] == "ok"
    await created(api, isReady=True)
    body = await overdue(api, "Queued")
    assert body["status"] == "degraded" and body["overdue"] == {"Queued": 1} and body["oldest"]
    assert any("overdue=Queued n=1" in line for line in caplog.messages)
    shown = await figures(api)
    assert (
        shown['einvoice_overdue{kind="Queued"}'] == "1"
        and shown['einvoice_submissions{state="Queued"}'] == "1"
    )
    assert float(shown['einvoice_overdue_seconds{kind="Queued"}']) > 0.2
    await owner.execute("update submissions set not_before = now() + interval '1 hour'")
    assert (await until(lambda: readiness(api), lambda body: not body["overdue"]))["status"] == "ok"


async def test_a_worker_that_takes_no_turn_is_overdue(start, company):
    """With less patience than it has between two turns."""
    api = await start(company, WATCHDOG_SECONDS="0.1", OVERDUE_SECONDS="0.001")
    await overdue(api, "Worker")


async def test_every_kind_that_is_stuck_is_named(start, company, owner):
    """A row of each, as whoever worked on it would have left it."""
    api = await start(company, **{**IMPATIENT, "SWEEP_SECONDS": "0.01"})
    for _ in range(3):
        id = await created(api)
        assert (await submitted(api, id))[0] == 200
        await reaches(api, id, "Valid")
    idle = await start(company, background=False, **{**IMPATIENT, "SWEEP_SECONDS": "0.01"})
    await api.close()
    past = "now() - interval '1 hour'"
    for id, state in enumerate(("Sending", "Uncertain", "Accepted"), 1):
        await owner.execute(
            f"""update submissions set state = $2, not_before = {past}, lease_until = {past}, last_sent_at = {past}
                 where id = $1""",
            id,
            state,
        )
    await owner.execute(f"update submitted_documents set cancelling_until = {past} where id = 1")
    await owner.execute(f"update sweeps set swept_at = {past}")
    await owner.execute(
        "insert into webhook_endpoints (company_id, url) select id, 'https://x.example' from companies"
    )
    await owner.execute(
        f"""insert into webhook_deliveries (company_id, endpoint_id, event_id, next_attempt_at)
            select w.company_id, w.id, (select min(id) from events), {past} from webhook_endpoints w"""
    )
    kinds = {"Sending", "Uncertain", "Accepted", "Cancellation", "Sweep", "Delivery"}
    await until(lambda: readiness(idle), lambda body: set(body["overdue"]) == kinds)


async def test_a_cancellation_is_overdue_only_once_it_should_have_settled(
    start, company, sandbox, owner
):
    """It is looked at again and again meanwhile: the claim on it never expires."""
    api = await start(
        company, **{**IMPATIENT, "OVERDUE_SECONDS": "30", "PORTAL_SETTLE_SECONDS": "600"}
    )
    id = await created(api)
    assert (await submitted(api, id))[0] == 200
    await reaches(api, id, "Valid")
    await sandbox.fault("state", "drop", times=2)
    assert (await answered(api, "POST", f"/api/invoices/{id}/cancel-latest-invoice-submitted"))[
        0
    ] == 400
    await until(sandbox.calls, lambda calls: calls["calls"]["details"] >= 3)
    assert (await readiness(api))["overdue"] == {}
    await sandbox.fault("details", "error_before", status=503, times=1000)

    async def age() -> dict[str, Any]:
        """Repeat the update: a look that began before it writes its own time back."""
        await owner.execute(
            "update submitted_documents set cancel_sent_by = now() - interval '11 minutes'"
        )
        return await readiness(api)

    await until(age, lambda body: body["overdue"] == {"Cancellation": 1})


async def test_what_a_person_has_to_look_at_is_counted_and_takes_nothing_away(
    start, company, owner
):
    api = await start(company, background=False, **IMPATIENT)
    assert (await submitted(api, id := await created(api)))[0] == 200
    await owner.execute("update submissions set state = 'NeedsPerson'")
    body = await until(lambda: readiness(api), lambda body: body["needs_person"])
    assert (body["status"], body["needs_person"], body["findings"], body["held"]) == ("ok", 1, 0, 0)
    assert (await figures(api))['einvoice_attention{kind="NeedsPerson"}'] == "1"
    assert (await documents(api, id))[0]["status"] == "Submitted"


async def test_a_worker_process_that_is_killed_is_missed(
    start, company, owner, environment, tmp_path
):
    await owner.execute(AUTOMATIC)
    api = await start(company, background=False, **{**IMPATIENT, "OVERDUE_SECONDS": "1"})
    command, variables = (
        [sys.executable, str(ROOT / "run.py"), "worker"],
        {**os.environ, **environment},
    )
    with open(tmp_path / "worker.log", "wb") as log:
        worker = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
    try:
        await reaches(api, await created(api, isReady=True), "Valid")
        assert (await readiness(api))["overdue"] == {}
    finally:
        worker.send_signal(signal.SIGKILL)
        await asyncio.to_thread(worker.wait)
    await created(api, isReady=True)
    await overdue(api, "Queued")


async def test_the_watchdog_goes_on_after_its_connection_was_cut(start, company, owner):
    api = await start(company, background=False, **IMPATIENT)
    await until(lambda: readiness(api), lambda body: body["needs_person"] == 0)
    await owner.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
    )
    await until(lambda: answered(api, "GET", "/readyz"), lambda answer: answer[0] == 200)
    assert (await submitted(api, await created(api)))[0] == 200
    await owner.execute("update submissions set state = 'NeedsPerson'")
    await until(lambda: readiness(api), lambda body: body["needs_person"] == 1)


async def test_a_loop_that_stands_still_is_said_with_the_place(caplog):
    guard = EventLoopMonitor(asyncio.get_running_loop(), seconds=0.1)
    guard.begin()
    for _ in range(600):
        time.sleep(0.1)  # as a mistake would block it
        if said := [
            record for record in caplog.records if "as a mistake would block it" in record.message
        ]:
            break
    await until(lambda: asyncio.sleep(0, guard.longest))
    guard.end()
    assert "blocked" in said[0].message and said[0].levelno == logging.WARNING
