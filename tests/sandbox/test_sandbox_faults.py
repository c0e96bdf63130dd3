"""Fault injection in the sandbox, its effect on the ledger, and the state kept over a restart."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from service.sandbox.settings import Settings
from tests.api_requests import expect
from tests.conftest import ClientFactory
from tests.fixtures_sandbox import HOUR, Portal, create_sandbox


async def submit_and_classify(portal: Portal, document: dict[str, Any]) -> tuple[int | str, str]:
    """Return the status and body of the response to a submission, or how the connection failed."""
    try:
        answer = await portal.submit(document)
        return answer.status, await answer.text()
    except aiohttp.ServerDisconnectedError:
        return "dropped", ""
    except aiohttp.ClientPayloadError:
        return "truncated", ""


@pytest.mark.parametrize(
    "kind, members, status, documents",
    [
        ("none", {}, 202, 1),
        ("drop", {}, "dropped", 0),
        ("accept_then_drop", {}, "dropped", 1),
        ("error_before", {}, 503, 0),
        ("error_before", {"status": 500}, 500, 0),
        ("error_after", {}, 503, 1),
        ("duplicate", {}, 422, 0),
        ("duplicate", {"processed": True}, 422, 1),
        ("throttle", {"retry_after": 7}, 429, 0),
        ("slow", {"seconds": 0.01}, 202, 1),
        ("slow_before", {"seconds": 0.01}, 202, 1),
        ("drip", {"seconds": 0.01}, 202, 1),
        ("truncate", {}, "truncated", 1),
        ("html", {}, 200, 0),
        ("html", {"processed": True, "status": 502}, 502, 1),
        ("redirect", {}, 302, 0),
        ("garbage", {}, 202, 1),
        ("garbage", {"processed": False}, 202, 0),
        ("neither", {}, 202, 1),
        ("neither", {"processed": False}, 202, 0),
        ("oversized", {}, 202, 1),
        ("reject", {}, 202, 0),
        ("unauthorized", {}, 401, 0),
        ("forget", {}, 404, 0),
        ("foreign", {}, 400, 0),
        ("refuse", {}, 400, 0),
        ("refuse", {"status": 404, "code": "NotFound"}, 404, 0),
    ],
)
async def test_an_injected_fault_determines_status_and_ledger(
    portal: Portal, kind: str, members: dict[str, Any], status: int | str, documents: int
) -> None:
    await portal.admin("faults", operation="submit", kind=kind, **members)
    assert (await submit_and_classify(portal, await portal.fresh("A")))[0] == status
    assert len(await portal.ledger()) == documents
    assert (await portal.admin("faults")) == {"faults": []}
    assert (await submit_and_classify(portal, await portal.fresh("B")))[0] == 202


@pytest.mark.parametrize(
    "kind, seconds",
    [("throttle", None), ("throttle", 7), ("duplicate", 600), ("error_before", None)],
)
async def test_an_injected_fault_sends_its_retry_after(
    portal: Portal, kind: str, seconds: int | None
) -> None:
    members = {"retry_after": seconds} if seconds else {}
    await portal.admin("faults", operation="submit", kind=kind, **members)
    answer = await portal.submit(await portal.fresh())
    assert answer.headers.get("Retry-After") == (str(seconds) if seconds else None)


async def test_an_injected_rejection_names_each_document(portal: Portal) -> None:
    await portal.admin("faults", operation="submit", kind="reject")
    answer = await (await portal.submit(await portal.fresh("A"), await portal.fresh("B"))).json()
    assert [each["invoiceCodeNumber"] for each in answer["rejectedDocuments"]] == ["A", "B"]
    assert answer["acceptedDocuments"] == [] and answer["submissionUid"] is None


@pytest.mark.parametrize("kind", ["refuse", "reject"])
async def test_duplicate_payload_detection_precedes_an_injected_refusal(
    portal: Portal, kind: str
) -> None:
    document = await portal.fresh()
    await portal.accepted(document)
    await portal.admin("faults", operation="submit", kind=kind)
    assert (await portal.submit(document)).status == 422


async def test_applied_faults_are_counted_by_label(portal: Portal) -> None:
    await portal.admin("faults", operation="submit", kind="drop", label="cut off")
    await portal.admin("faults", operation="submit", kind="error_before", times=2)
    for number in "ABC":
        await submit_and_classify(portal, await portal.fresh(number))
    assert (await portal.admin("calls"))["faults"] == {"cut off": 1, "error_before": 2}


async def test_a_garbled_response_is_not_json(portal: Portal) -> None:
    await portal.admin("faults", operation="submit", kind="garbage")
    with pytest.raises(json.JSONDecodeError):
        await (await portal.submit(await portal.fresh())).json()


async def test_a_late_submission_is_accepted_after_the_client_disconnects(portal: Portal) -> None:
    await portal.admin("faults", operation="submit", kind="slow_before", seconds=0.05)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(portal.submit(await portal.fresh()), 0.03)
    async with asyncio.timeout(60):
        while not (ledger := await portal.ledger()):
            pass
    assert ledger[0]["number"] == "INV-1"


async def test_faults_are_applied_in_the_order_they_were_injected(portal: Portal) -> None:
    for order in ({"kind": "error_before", "times": 2}, {"kind": "none"}, {"kind": "forget"}):
        await portal.admin("faults", operation="recent", **order)
    statuses = [(await portal.call("GET", "/documents/recent")).status for _ in range(5)]
    assert statuses == [503, 503, 200, 404, 200]


async def test_a_fault_with_a_number_waits_for_that_document(portal: Portal) -> None:
    await portal.admin("faults", operation="*", kind="error_before", number="B")
    assert [
        (await submit_and_classify(portal, await portal.fresh(number)))[0] for number in "ABB"
    ] == [
        202,
        503,
        202,
    ]


@pytest.mark.parametrize(
    "order", [{"kind": "none"}, {"operation": "x", "kind": "none"}, {"operation": "*", "kind": "x"}]
)
async def test_an_invalid_fault_is_refused(portal: Portal, order: dict[str, Any]) -> None:
    assert (await portal.http.post("/_sandbox/faults", json=order)).status == 400


async def test_pending_faults_are_listed_and_cleared(portal: Portal) -> None:
    order = {"operation": "search", "kind": "slow", "times": 3, "seconds": 1.5}
    await portal.admin("faults", **order)
    (listed,) = (await portal.admin("faults"))["faults"]
    assert order.items() <= listed.items()
    assert await (await portal.http.delete("/_sandbox/faults")).json() == {"cleared": 1}


async def test_a_fault_can_be_injected_into_login(portal: Portal) -> None:
    await portal.admin("faults", operation="login", kind="error_before")
    with pytest.raises(KeyError):
        await portal.login()
    await portal.login()


async def test_expired_tokens_are_refused(portal: Portal) -> None:
    await portal.http.post("/_sandbox/tokens/expire")
    assert (await portal.call("GET", "/documents/recent")).status == 401
    await portal.login()
    assert (await portal.call("GET", "/documents/recent")).status == 200


async def test_requests_and_responses_are_counted(portal: Portal) -> None:
    await portal.admin("faults", operation="submit", kind="accept_then_drop")
    await submit_and_classify(portal, await portal.fresh("A"))
    await submit_and_classify(portal, await portal.fresh("B"))
    calls = await portal.admin("calls")
    assert calls["calls"] == {"login": 1, "submit": 2}
    assert calls["answers"] == {"login": {"200": 1}, "submit": {"202": 1, "dropped": 1}}
    assert calls["lastSubmitAt"]


@pytest.mark.parametrize(
    "values", [{"nonsense": 1}, {"stuck": "yes"}, {"mismatch_status": 200}, {"token_seconds": -1}]
)
async def test_invalid_settings_are_refused(portal: Portal, values: dict[str, Any]) -> None:
    before = await portal.admin("settings")
    assert (await portal.http.post("/_sandbox/settings", json=values)).status == 400
    assert await portal.admin("settings") == before


@pytest.mark.parametrize(
    "number, status",
    [
        ("SIM-500-1", 500),
        ("SIM-429-1", 429),
        ("SIM-INVALID-1", "Invalid"),
        ("SIM-SLOW-1", "Submitted"),
    ],
)
async def test_special_document_numbers_force_an_outcome(
    portal: Portal, number: str, status: int | str
) -> None:
    answer = await portal.submit(await portal.fresh(number))
    documents = [each["status"] for each in await portal.ledger()]
    assert answer.status == status or documents == [status]


async def test_an_unexpected_error_is_a_500_in_the_portals_format(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = await portal.accepted(await portal.fresh())
    monkeypatch.setattr("service.sandbox.documents.head", lambda row: 1 / 0)
    answer = await portal.call("GET", f"/documents/{uuid}/details")
    assert (answer.status, (await answer.json())["error"]["code"]) == (500, "InternalServerError")
    assert answer.headers["correlationId"] in caplog.text


async def test_reset_removes_all_state(portal: Portal) -> None:
    await portal.accepted(await portal.fresh())
    await portal.admin("settings", stuck=True)
    await portal.admin("clock", seconds=HOUR)
    await portal.http.post("/_sandbox/reset")
    assert (await portal.admin("clock"))["offset"] == 0
    assert (await portal.admin("settings"))["stuck"] is False
    await portal.login()
    uuid = await portal.accepted(await portal.fresh())
    assert [(each["sequence"], each["uuid"]) for each in await portal.ledger()] == [(1, uuid)]


async def test_a_restart_keeps_all_state(
    portal: Portal, settings: Settings, aiohttp_client: ClientFactory
) -> None:
    uuid = await portal.accepted(await portal.fresh())
    await portal.admin("settings", stuck=True, search_lag_seconds=5)
    await portal.admin("clock", seconds=30)
    await portal.admin("faults", operation="tin", kind="drop", times=2)
    await portal.admin(
        "taxpayers", tin="C7777777770", name="New", identities=[{"type": "BRN", "value": "1"}]
    )
    waiting = await portal.accepted(await portal.fresh("B"))
    await portal.http.close()

    again = Portal(await aiohttp_client(create_sandbox(settings)))
    again.token = portal.token
    kept = [(each["uuid"], each["status"]) for each in await again.ledger()]
    assert kept == [(uuid, "Valid"), (waiting, "Submitted")]
    assert (await again.admin("settings"))["search_lag_seconds"] == 5
    assert (await again.admin("clock"))["offset"] == 30
    assert (await again.admin("faults"))["faults"][0]["times"] == 2
    await again.http.delete("/_sandbox/faults")
    await again.admin("settings", stuck=False)
    assert (await again.details(waiting))["status"] == "Valid"
    found = await again.call("GET", "/taxpayer/validate/C7777777770?idType=BRN&idValue=1")
    assert found.status == 200


@contextmanager
def run_sandbox(environ: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the process and the URL of a sandbox that listens. Kill it with SIGKILL at the end."""
    program = (
        "import os; from service.sandbox import app, settings; "
        "app.run(settings.Settings.from_env(os.environ))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        (url,) = re.findall(r"http://\S+", process.stdout.readline())
        yield process, url
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_killed_sandbox_keeps_everything_it_acknowledged(tmp_path: Path) -> None:
    state = str(tmp_path / "state" / "sandbox.sqlite3")
    environ = {
        **os.environ,
        "SANDBOX_PORT": "0",
        "SANDBOX_STATE": state,
        "SANDBOX_PROCESSING_SECONDS": "0.5",
    }
    with run_sandbox(environ) as (_, url):
        async with aiohttp.ClientSession(url) as http:
            portal = await Portal(http).login()
            uuids = [await portal.accepted(await portal.fresh(f"K{index}")) for index in range(20)]
    with run_sandbox(environ) as (process, url):
        async with aiohttp.ClientSession(url) as http:
            portal = Portal(http)
            assert [each["uuid"] for each in await portal.ledger()] == uuids
            await portal.admin("clock", seconds=1)
            assert {each["status"] for each in await portal.ledger()} == {"Valid"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_settings_name_every_invalid_variable() -> None:
    with pytest.raises(ValueError, match=r"SANDBOX_PORT.*SANDBOX_RATE_SCALE"):
        Settings.from_env({"SANDBOX_PORT": "x", "SANDBOX_RATE_SCALE": "fast"})
    assert Settings.from_env({"SANDBOX_PORT": "8091"}).port == 8091


async def test_wrong_date_shifts_the_date_of_one_response(portal: Portal) -> None:
    await portal.admin("faults", operation="types", kind="wrong_date", seconds=HOUR)
    await portal.login()
    dates = [
        parsedate_to_datetime((await portal.call("GET", "/documenttypes")).headers["Date"])
        for _ in range(2)
    ]
    assert HOUR - 600 < (dates[0] - dates[1]).total_seconds() <= HOUR


async def test_the_clock_can_be_moved_back(portal: Portal) -> None:
    await portal.admin("clock", seconds=HOUR)
    await portal.admin("clock", seconds=-HOUR)
    assert (await portal.admin("clock"))["offset"] == 0
    await expect(portal.http, 400, "POST", "/_sandbox/clock", json={"seconds": -1})
