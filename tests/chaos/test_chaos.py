"""A short chaos run, and tests of its judge, proxy and reports."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.api_invoices import create_valid_invoice
from tests.api_reads import get_json, read_request
from tests.api_requests import create_record, expect
from tests.chaos import judge, report, rules, schedule
from tests.chaos.chaos_run import Progress, Size, play
from tests.chaos.clients import Answer, KeyedRequest, Record
from tests.chaos.counters import Counters
from tests.chaos.facts import Event, Facts, Known, Source, collect_facts
from tests.chaos.proxy import Proxy
from tests.chaos.receiver import Arrival, Endpoint
from tests.conftest import Client, Company, Sandbox, until
from tests.harness.bodies import line, note

TEXT = line()["description"]
SMALL = Size(documents=30, kills=8, pauses=1, restarts=1, naive=40, seconds=150, least=0)


@pytest.mark.long
@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the run reads the state of its processes from /proc"
)
async def test_short_chaos_run_loses_nothing_and_sends_no_duplicates(tmp_path: Path) -> None:
    counters = await play(7, schedule.MODES[0], SMALL, tmp_path)
    assert counters.violations == []
    assert counters.counts["kills"] >= SMALL.kills
    assert counters.counts["acknowledged effects"] >= SMALL.documents
    assert len(counters.seldom(report.WANTED, 1)) < len(report.WANTED) * 2 / 3
    assert counters.seldom(report.JUDGED, 1) == {}
    assert counters.counts["naive duplicates"] > 0  # A long run has a share of them.
    assert 0 < counters.highest[report.PEAK] < report.MEMORY


@pytest.fixture
async def acknowledged(api: Client, company: Company) -> Record:
    """Return the client's record of an invoice that is submitted and Valid."""
    return Record(company.id, 0, await create_valid_invoice(api), TEXT, is_submitted=True)


class Judge(Protocol):
    """The type of the fixture judged."""

    def __call__(self, detects: bool = False) -> Awaitable[set[str]]: ...


@pytest.fixture
def known(acknowledged: Record) -> Known:
    """Return what the clients of a test know, which it may extend."""
    return Known([acknowledged], [], [])


@pytest.fixture
def source(database: str, sandbox: Sandbox, api: Client, company: Company) -> Source:
    """Return the places from which the facts of a test are read."""
    companies = [{"id": company.id, "key": company.key, "key_id": company.key_id}]
    return Source(database, sandbox, str(api.make_url("")).rstrip("/"), companies)


@pytest.fixture
def judged(source: Source, known: Known) -> Judge:
    """Return a function that returns the names of the violated rules."""

    async def violated(detects: bool = False) -> set[str]:
        counters = Counters()
        judge.judge(await collect_facts(source, known, detects), counters)
        return {line.partition(":")[0] for line in counters.violations}

    return violated


@pytest.fixture
async def facts(source: Source, known: Known) -> Facts:
    """Return the facts of a run with one Valid invoice, which a test may damage."""
    return await collect_facts(source, known, detects=False)


async def test_judge_reports_no_violation_of_a_correct_run(judged: Judge) -> None:
    assert await judged() == set()


#: statement that damages a Valid invoice -> the rules that are violated
LOSSES = {
    "delete from submitted_contents; delete from submitted_documents": {
        *("acknowledged_lost", "unknown_to_us"),
        *("totals", "events"),
    },
    "update document_states set status = 'Draft'; update documents set deleted_at = now()": {
        *("acknowledged_lost", "events", "outcomes"),
    },
    "update documents set line_items ="
    """ jsonb_set(line_items::jsonb, '{0,description}', '"Tea"')""": {
        "acknowledged_lost",
        "locked_changed",
    },
    "update submitted_documents set status = 'Invalid'": {"unknown_to_us", "events", "outcomes"},
    "update submitted_documents set uuid = 'ANOTHER'": {
        "acknowledged_lost",
        "unknown_to_us",
        "unknown_to_the_portal",
    },
    "update submissions set state = 'Uncertain'": {"unresolved"},
    "update submissions set state = 'NeedsPerson'": {"needs_person"},
    "update submissions set state = 'NotReceived', on_absence = 'retry'": {"promise_broken"},
}


#: statement that damages what the service derives from a Valid invoice -> the violated rules
DERIVED = {
    "update record_counts set live = live + 1 where status = 'Valid' and list = 'invoice'": {
        "totals"
    },
    "update record_counts set type = 'SELF_BILLED_INVOICE' where list = 'invoice'": {"totals"},
    "update document_states set adjusted_by = 1": {"adjusted_amounts"},
    "update document_states set outcome_at = null": {"outcomes"},
    "delete from events where type = 'invoice.created'": {"events"},
    "delete from events where type = 'invoice.submitting'": {"events", "audit"},
    "delete from events where type = 'invoice.submitted'": {"events", "acknowledged_events"},
    "delete from events where type = 'invoice.valid'": {"events"},
    "insert into events (company_id, type, data)"
    " select company_id, type, data from events where type = 'invoice.valid'": {"events"},
    "insert into events (company_id, type, data)"
    " select company_id, 'invoice.deleted', data from events where type = 'invoice.valid'": {
        *("events", "audit"),
    },
    "update events set transaction_id = '3' where type = 'invoice.valid'": {"events"},
    "update events set type = 'invoice.invalid' where type = 'invoice.valid'": {"events"},
    "delete from audit_log where action = 'submit'": {"audit"},
    "update audit_log set actor = 'background' where action = 'submit'": {"audit"},
}


@pytest.mark.parametrize("statement, violated", (LOSSES | DERIVED).items())
async def test_judge_reports_damaged_data(
    judged: Judge, owner: asyncpg.Connection, statement: Any, violated: set[str]
) -> None:
    await owner.execute(statement)
    assert await judged() == violated


async def _create_valid_note(api: Client, invoice_id: int, **changes: Any) -> None:
    made = await create_record(
        api, f"/api/invoices/{invoice_id}/adjustment-note", **note(**changes)
    )
    path = f"/api/adjustment-notes/{made['id']}"
    await expect(api, 200, "POST", f"{path}/submit-to-portal", json={})
    await until(lambda: get_json(api, path), lambda found: found["status"] == "Valid")


@pytest.mark.parametrize(
    "statement",
    [
        "select",
        "update document_states set adjusted_by = 0",
        "update documents set type = 'CREDIT_NOTE' where kind = 'adjustment_note'",
        "update documents set payable_amount = 60 where type = 'CREDIT_NOTE'",
        "update documents set payable_amount = 1",
    ],
)
async def test_judge_compares_the_adjusted_amount_with_the_notes(
    judged: Judge, api: Client, acknowledged: Record, owner: asyncpg.Connection, statement: Any
) -> None:
    """The last statement makes the adjusted amount negative."""
    assert acknowledged.id
    await _create_valid_note(api, acknowledged.id)
    unit = {"code": "KGM", "price": 1, "count": 1}
    more = {"type": "DEBIT_NOTE", "lineItems": [line(unit=unit)]}
    await _create_valid_note(api, acknowledged.id, **more)
    await owner.execute(statement)
    assert await judged() == ({"adjusted_amounts"} if statement != "select" else set())


@pytest.mark.parametrize(
    "claim", [{"cancels": 1}, {"is_deleted": True}, {"updates": 1}, {"seen_statuses": {"Invalid"}}]
)
async def test_judge_reports_acknowledged_changes_without_an_event(
    judged: Judge, acknowledged: Record, claim: dict[str, Any]
) -> None:
    vars(acknowledged).update(claim)
    assert "acknowledged_events" in await judged()


def _swap(feed: list[Event]) -> None:
    feed[0], feed[1] = feed[1], feed[0]


@pytest.mark.parametrize("change", [list.pop, _swap, lambda feed: feed.append(feed[-1])])
async def test_judge_reports_a_feed_that_misses_repeats_or_swaps_events(
    facts: Facts, change: Callable[[list[Event]], Any]
) -> None:
    assert not any(rules.feed(facts))
    change(facts.feed)
    assert any(rules.feed(facts))


async def test_judge_reports_a_wrong_total_of_the_api(facts: Facts) -> None:
    facts.totals[0] = replace(facts.totals[0], total=7)
    assert len([*filter(None, rules.totals(facts))]) == 1


def _deliver(facts: Facts) -> Endpoint:
    """Add an endpoint that has received all events."""
    endpoint = Endpoint(facts.companies[0]["id"], 1, [], "")
    for event in facts.feed:
        body = {"type": event.type, "data": event.data}
        endpoint.arrivals.append(Arrival(event.id, is_signed=True, is_accepted=True, body=body))
    endpoints: Any = facts.known.endpoints
    endpoints.append(endpoint)
    return endpoint


@pytest.mark.parametrize(
    "place, damage, found",
    [
        (0, {}, ""),
        (1, {"is_accepted": False}, "was not delivered"),
        (1, {"is_signed": False}, "is not signed"),
        (1, {"body": {"type": "invoice.valid", "data": {}}}, "has the body"),
        (1, {"event": 10**9}, "does not belong to it"),
    ],
)
async def test_judge_reports_wrong_deliveries(
    facts: Facts, place: int, damage: dict[str, Any], found: str
) -> None:
    arrivals = _deliver(facts).arrivals
    arrivals[place] = replace(arrivals[place], **damage)
    cases = [*filter(None, rules.deliveries(facts))]
    assert (bool(cases), [case for case in cases if found in case] != []) == (bool(found),) * 2


async def test_judge_reports_events_of_another_type_or_before_the_endpoint(facts: Facts) -> None:
    endpoint = _deliver(facts)
    endpoint.types = ["invoice.valid"]
    assert any(rules.deliveries(facts))
    endpoint.types = []
    endpoint.after = facts.feed[0].id
    assert any(rules.deliveries(facts))


@pytest.mark.parametrize("attempts, is_late", [(1, True), (2, False)])
async def test_judge_reports_deliveries_in_another_order_unless_repeated(
    facts: Facts, attempts: int, is_late: bool
) -> None:
    endpoint = _deliver(facts)
    endpoint.arrivals.append(endpoint.arrivals.pop(1))
    event = {"event_id": endpoint.arrivals[-1].event, "attempts": attempts}
    rows: Any = facts["attempts"]
    rows.append({"company_id": endpoint.company, "endpoint_id": 1, "status": "Delivered", **event})
    assert any(rules.deliveries(facts)) is is_late


def _answer(status: int | None, number: int = 1, is_replayed: bool = False) -> Answer:
    return Answer(status, is_replayed, {"data": {"id": number}})


@pytest.mark.parametrize(
    "answers, body, is_right",
    [
        ([_answer(201), _answer(201, is_replayed=True)], {}, True),
        ([_answer(None), _answer(409), _answer(201, is_replayed=True)], {}, True),
        ([_answer(None), _answer(503), _answer(409)], {}, False),
        ([_answer(201), _answer(201)], {}, False),
        ([_answer(201), _answer(201, 2, is_replayed=True)], {}, False),
        ([_answer(201), _answer(503, is_replayed=True)], {}, False),
        ([_answer(201), _answer(409, is_replayed=True)], {}, False),
        ([_answer(400, 1, True), _answer(400, 2, True)], {}, False),
        ([_answer(400, 1, True), _answer(400, 2, True)], {"isReady": True}, True),
    ],
)
async def test_judge_compares_the_responses_to_repetitions(
    facts: Facts, answers: list[Answer], body: dict[str, Any], is_right: bool
) -> None:
    (row,) = facts["records"]
    request = KeyedRequest(row["company_id"], "k", "/api/invoices", body, "invoice", row["code"])
    request.answers += answers
    known: Any = facts.known.keyed
    known.append(request)
    assert any(rules.repetitions(facts)) is not is_right


@pytest.mark.parametrize("rows", [0, 2])
async def test_judge_reports_a_repeated_creation_without_one_record(
    facts: Facts, rows: int
) -> None:
    (row,) = facts["records"]
    request = KeyedRequest(row["company_id"], "k", "/api/invoices", {}, "invoice", row["code"])
    request.answers += [_answer(None), _answer(201)]
    known: Any = facts.known.keyed
    known.append(request)
    facts["records"][:] = [row] * rows
    assert any(rules.repetitions(facts))


def test_run_ends_when_it_hangs_or_has_done_enough_work() -> None:
    now = 0.0
    progress = Progress(Size(documents=10, seconds=100), 2.0, lambda: now)
    for now, created, reason in (
        (110.0, 1, None),
        (220.0, 10, None),  # over time with too little work
        (330.0, 31, "too seldom"),
        (460.0, 31, "hang"),
    ):
        end = progress.find_end(created)
        assert (end and end.partition(":")[0][: len(reason or "")]) == reason, now


def test_times_are_scaled_in_settings_and_errors() -> None:
    assert schedule.scale({"PORTAL_LEASE_SECONDS": "2.5", "LOG_LEVEL": "INFO"}, 2) == {
        "PORTAL_LEASE_SECONDS": "5.0",
        "LOG_LEVEL": "INFO",
    }
    assert schedule.scale({"seconds": 1.2, "status": 503}, 2) == {"seconds": 2.4, "status": 503}


def test_run_is_wanting_if_a_rule_had_no_case() -> None:
    counters = Counters()
    names = report.select_judged(counters)
    assert "judged events" in names and "judged adjusted_amounts" not in names
    counters.count(report.ALL_KINDS)
    assert "judged adjusted_amounts" in report.select_judged(counters)
    lines = list(report.missing(counters, dict.fromkeys(names, 1)))
    assert len(lines) == len(names) and lines[0].startswith("too seldom")


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
    vars(acknowledged).update(claim)
    assert "acknowledged_lost" in await judged()


@pytest.mark.parametrize(
    "detects, found", [(False, {"attempt_twice", "live_twice", "unknown_to_us"}), (True, set())]
)
async def test_judge_reports_documents_sent_twice(
    judged: Judge, sandbox: Sandbox, owner: asyncpg.Connection, detects: bool, found: Any
) -> None:
    """The same bytes are sent again, to portals with and without late duplicate detection."""
    await sandbox.settings(payload_detection=False, duplicate_detection=detects)
    _, request = await read_request(owner)
    await send_again(sandbox, request.body)
    assert len(await sandbox.ledger()) == 2
    assert await judged(detects) == found


async def send_again(sandbox: Sandbox, body: bytes) -> None:
    (there,) = await sandbox.ledger()
    answer = await sandbox.request(
        there["taxpayer"], "POST", "documentsubmissions/", json=json.loads(body)
    )
    assert len(answer["acceptedDocuments"]) == 1
    async with sandbox.client.get("/_sandbox/clock"):  # any request triggers due validations
        pass


class Always(Random):
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
