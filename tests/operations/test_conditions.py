"""Conditions for operators: description, suggested action, and how fast they are reported."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from service.http import app_keys
from service.monitoring.watchdog import WORDING
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import expect, submit
from tests.conftest import Client, StartService, until
from tests.harness.companies import AUTOMATIC
from tests.harness.processes import free_port, run_command

IMPATIENT = {"WATCHDOG_SECONDS": "0.1", "OVERDUE_SECONDS": "0.01"}
HOUR_AGO = "now() - interval '1 hour'"

#: kind -> statements that cause the condition in an accepted submission
STATES = {
    "UnknownOutcome": [f"update submissions set state = 'Uncertain', last_sent_at = {HOUR_AGO}"],
    "NoOutcome": [
        "update submissions set state = 'Accepted', has_outcome = false,"
        " last_sent_at = now() - interval '25 hours', not_before = now() + interval '1 hour'"
    ],
    "SenderSilent": [
        f"update submissions set state = 'Sending', last_sent_at = {HOUR_AGO}, "
        f"lease_until = {HOUR_AGO}"
    ],
    "UnclearCancellation": [
        f"update submitted_documents set cancelling_until = {HOUR_AGO}, "
        f"cancel_sent_by = {HOUR_AGO}, cancellation_requested_at = {HOUR_AGO}"
    ],
    "RepeatedFailure": ["update submissions set claims = 3"],
    "PortalUnreachable": [
        "update submissions set state = 'Queued', "
        """last_error = '{"code": "PortalUnreachable"}', """
        f"updated_at = {HOUR_AGO}"
    ],
    "ClocksApart": [
        """update submissions set state = 'Queued', last_error = '{"code": "ClocksApart"}', """
        f"updated_at = {HOUR_AGO}"
    ],
    "UnreadableRows": [
        "insert into portal_odd_rows (company_id, row_key, operation, tin, problems, shown) "
        "select id, 'X', 'search', tin, 'status is unknown', '{}' from companies"
    ],
    "NeedsPerson": ["update submissions set state = 'NeedsPerson'"],
    "ClockStepped": ["update database_state set stepped_at = now(), stepped_by = '1 second'"],
    "OpenTransaction": [
        f"update database_state set oldest = '1', open_since = {HOUR_AGO},"
        " seen_at = clock_timestamp()"
    ],
    "Hold": [
        "insert into sending_holds (company_id, reason) select id, 'A restore.' from companies"
    ],
}


async def get_conditions(api: Client) -> dict[str, Any]:
    body = await expect(api, 200, "GET", "/readyz")
    return {condition["kind"]: condition for condition in body["conditions"]}


@pytest.mark.parametrize("kind", STATES)
async def test_watchdog_reports_a_condition_with_an_action(
    start: StartService, owner: asyncpg.Connection, environment: dict[str, str], kind: str
) -> None:
    api = await start()
    await create_valid_invoice(api)
    await api.close()
    idle = await start(background=False, **IMPATIENT)
    assert kind not in await get_conditions(idle)
    for statement in STATES[kind]:
        await owner.execute(statement)
    found = (await until(lambda: get_conditions(idle), lambda found: kind in found))[kind]
    words = WORDING[kind]
    expected = (words["what"].format(n=1), words["action"], 1)
    assert (found["what"], found["action"], found["n"]) == expected
    assert found["since"]
    shown = await run_command(["attention"], {**environment, **IMPATIENT})
    assert found in json.loads(shown.out)["conditions"], shown.err


async def test_watchdog_reports_an_unreachable_portal(
    start: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    api = await start(**IMPATIENT, PORTAL_API_BASE=nowhere, PORTAL_IDENTITY_BASE=nowhere)
    assert "PortalUnreachable" not in await get_conditions(api)
    assert (await submit(api, await create_invoice(api)))[0] == 400
    assert "cannot be reached" in (await get_conditions(api))["PortalUnreachable"]["what"]
    await until(lambda: find_log_lines(caplog, "PortalUnreachable"))
    watchdog: Any = api.app and api.app[app_keys.WATCHDOG]
    later = watchdog.beat + 0.5  # The watchdog looks some times until then.
    await until(lambda: asyncio.sleep(0, watchdog.beat > later))
    assert len(await find_log_lines(caplog, "PortalUnreachable")) == 1


async def test_a_condition_lasts_since_the_first_failure(
    start: StartService, owner: asyncpg.Connection
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    away = {"PORTAL_API_BASE": nowhere, "PORTAL_IDENTITY_BASE": nowhere}
    await owner.execute(AUTOMATIC)
    idle = await start(background=False)
    await create_invoice(idle, isReady=True)
    await owner.execute(f"update submissions set created_at = {HOUR_AGO}, not_before = {HOUR_AGO}")
    api = await start(**IMPATIENT, **away, PORTAL_RETRY_SECONDS="0.05")
    since = "select last_error ->> 'since' from submissions where reads >= {}"
    first = await until(lambda: owner.fetchval(since.format(1)))
    assert await until(lambda: owner.fetchval(since.format(3))) == first
    shown = await until(lambda: get_conditions(api), lambda found: "PortalUnreachable" in found)
    age = datetime.now(UTC) - datetime.fromisoformat(shown["PortalUnreachable"]["since"])
    assert age < timedelta(minutes=30)


async def find_log_lines(caplog: pytest.LogCaptureFixture, kind: str) -> list[Any]:
    return [line for line in caplog.messages if line.startswith(f"condition={kind}")]


async def test_every_condition_kind_has_a_description(owner: asyncpg.Connection) -> None:
    text: Any = await owner.fetchval("select pg_get_functiondef('conditions'::regproc)")
    kinds = set(re.findall(r"'(?:overdue|attention)'::text(?: AS \w+)?,\s*'(\w+)'::text", text))
    assert len(kinds) >= 8
    assert kinds <= WORDING.keys()
