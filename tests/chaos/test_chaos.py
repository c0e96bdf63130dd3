"""A short chaos run, and tests of its judge, proxy and reports."""

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import pytest
from conftest import Client, Company, Sandbox
from kit import create_valid_invoice, line

from chaos import judge, report, schedule
from chaos.clients import Record
from chaos.counters import Counters
from chaos.proxy import Proxy
from chaos.season import Size, play

TEXT = line()["description"]
SMALL = Size(documents=30, kills=8, pauses=1, restarts=1, naive=40, seconds=150, least=0)


@pytest.mark.long
@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the run reads the state of its processes from /proc"
)
async def test_short_chaos_run_loses_nothing_and_sends_no_duplicates(tmp_path: Path) -> None:
    counters = await play(7, schedule.MODES[0], SMALL, tmp_path)
    assert counters.violations == []
    assert (
        counters.counts["kills"] >= SMALL.kills
        and counters.counts["acknowledged effects"] >= SMALL.documents
    )
    assert len(counters.seldom(report.WANTED, 1)) < len(report.WANTED) * 2 / 3
    assert counters.counts["naive duplicates"] * report.NAIVE_SHARE > SMALL.naive
    assert 0 < counters.highest[report.PEAK] < report.MEMORY


@pytest.fixture
async def acknowledged(api: Client, company: Company) -> Record:
    """Return the client's record of an invoice that is submitted and Valid."""
    return Record(company.id, 0, await create_valid_invoice(api), TEXT, is_submitted=True)


class Judge(Protocol):
    """The type of the fixture judged."""

    def __call__(self, detects: bool = False) -> Awaitable[set[str]]:
        """Return the names of the violated rules."""
        ...


@pytest.fixture
def judged(database: str, sandbox: Sandbox, acknowledged: Record) -> Judge:
    """Return a function that returns the names of the violated rules."""

    async def violated(detects: bool = False) -> set[str]:
        counters = Counters()
        facts = await judge.collect_facts(database, sandbox, [acknowledged], detects)
        judge.judge(facts, counters)
        return {line.partition(":")[0] for line in counters.violations}

    return violated


async def test_judge_reports_no_violation_of_a_correct_run(judged: Judge) -> None:
    assert await judged() == set()


#: statement that damages a Valid invoice -> the rules that are violated
LOSSES = {
    "delete from submitted_documents": {"acknowledged_lost", "unknown_to_us"},
    "update invoices set status = 'Draft', deleted_at = now()": {"acknowledged_lost"},
    "update invoices set line_items ="
    """ jsonb_set(line_items::jsonb, '{0,description}', '"Tea"')""": {
        "acknowledged_lost",
        "locked_changed",
    },
    "update submitted_documents set status = 'Invalid'": {"unknown_to_us"},
    "update submitted_documents set uuid = 'ANOTHER'": {
        "acknowledged_lost",
        "unknown_to_us",
        "unknown_to_the_portal",
    },
    "update submissions set state = 'Uncertain'": {"unresolved"},
    "update submissions set state = 'NeedsPerson'": {"needs_person"},
    "update submissions set state = 'NotReceived', on_absence = 'retry'": {"promise_broken"},
}


@pytest.mark.parametrize("statement", LOSSES)
async def test_judge_reports_lost_effects(
    judged: Judge, owner: asyncpg.Connection, statement: Any
) -> None:
    await owner.execute(statement)
    assert await judged() == LOSSES[statement]


@pytest.mark.parametrize("detects, found", [(False, {"unknown_to_us"}), (True, set())])
async def test_judge_reports_an_unknown_cancellation(
    judged: Judge, sandbox: Sandbox, detects: bool, found: Any
) -> None:
    """With too short a settling time, the portal may have processed it later."""
    await sandbox.cancel((await sandbox.ledger())[0]["uuid"], "Late")
    assert await judged(detects) == found


@pytest.mark.parametrize("claim", [{"is_deleted": True}, {"cancels": 1}, {"text": "Tea"}])
async def test_judge_reports_acknowledged_changes_that_are_missing(
    judged: Judge, acknowledged: Record, claim: dict[str, Any]
) -> None:
    for name, value in claim.items():
        setattr(acknowledged, name, value)
    assert "acknowledged_lost" in await judged()


@pytest.mark.parametrize(
    "detects, found", [(False, {"attempt_twice", "live_twice", "unknown_to_us"}), (True, set())]
)
async def test_judge_reports_documents_sent_twice(
    judged: Judge, sandbox: Sandbox, owner: asyncpg.Connection, detects: bool, found: Any
) -> None:
    """The same bytes are sent again, to portals with and without late duplicate detection."""
    await sandbox.settings(payload_detection=False, duplicate_detection=detects)
    body: Any = await owner.fetchval("select body from submissions")
    await send_again(sandbox, body)
    assert len(await sandbox.ledger()) == 2
    assert await judged(detects) == found


async def send_again(sandbox: Sandbox, body: str) -> None:
    login = {
        "client_id": "sandbox-client",
        "client_secret": "sandbox-secret",
        "grant_type": "client_credentials",
    }
    (there,) = await sandbox.ledger()
    async with sandbox.client.post(
        "/connect/token", data=login, headers={"onbehalfof": there["taxpayer"]}
    ) as answer:
        token = (await answer.json())["access_token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with sandbox.client.post(
        "/api/v1.0/documentsubmissions/", data=body, headers=headers
    ) as answer:
        assert len(json.loads(await answer.text())["acceptedDocuments"]) == 1
    async with sandbox.client.get("/_sandbox/clock"):  # any request triggers due validations
        pass


class Always:
    """A random source in which every event happens."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize("share, is_there", [("lost", True), ("cut", False)])
async def test_proxy_loses_a_commit_or_its_response(
    database: str, owner: asyncpg.Connection, share: str, is_there: bool
) -> None:
    target = urlsplit(database).port or 5432
    async with Proxy(target, Always(), Counters()) as proxy:
        conn = await asyncpg.connect(database.replace(f":{target}/", f":{proxy.port}/"))
        await conn.execute("begin")
        await conn.execute("create table kept ()")
        setattr(proxy, share, 1.0)
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await conn.execute("commit")
    assert await owner.fetchval("select to_regclass('kept') is not null") is is_there


def test_report_names_events_that_were_too_rare() -> None:
    counters = Counters()
    for name in report.WANTED:
        counters.count(name, 20)
    counters.count("naive documents", 300)
    counters.count("naive duplicates", 21)
    assert list(report.missing(counters, dict.fromkeys(report.WANTED, 20))) == []
    counters.count("row 401", -1)
    counters.count("naive duplicates", -1)
    counters.reach(report.PEAK, report.MEMORY)
    lines = list(report.missing(counters, dict.fromkeys(report.WANTED, 20)))
    assert [line.partition(":")[0] for line in lines] == [
        "too seldom",
        "the schedule does not bite",
        "memory",
    ]
    assert "row 401, 19 times" in lines[0]
