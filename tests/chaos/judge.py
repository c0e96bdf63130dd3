"""Compare the portal's ledger, the database, and the effects that were acknowledged to clients."""

import asyncio
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import asyncpg

from service.commands.bootstrap import run_command
from service.commands.reconcile import reconcile
from service.config import read_config
from tests.harness.databases import ask

from . import rules
from .clients import Record
from .counters import Counters
from .facts import Entry, Facts, sql

CLOSED = {"Invalid", "Cancelled"}


async def most_claims(url: str) -> int:
    """Return the maximum claims without a result of a submission; 0 while PostgreSQL is down."""
    return await ask(url, sql.most_claims, otherwise=0)


async def wait_until_settled(url: str, seconds: float) -> float | None:
    """Wait until every outcome is known and every event delivered. Return the seconds.

    Return None if the number of the unsettled has not fallen for `seconds`.
    """
    conn = await asyncpg.connect(url)
    began = progressed_at = time.monotonic()
    least = None
    try:
        while left := len(await sql.unresolved_all(conn)) + await sql.deliveries_left(conn):
            if least is None or left < least:
                least, progressed_at = left, time.monotonic()
            if time.monotonic() - progressed_at > seconds:
                return None
            await asyncio.sleep(0.2)
        return time.monotonic() - began
    finally:
        await conn.close()


async def run_comparison(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Compare all companies with the portal by the service's command. Return the findings."""
    result = await run_command(read_config(environment), reconcile)
    return [finding for company in result["companies"] for finding in company["findings"]]


def judge(facts: Facts, counters: Counters) -> None:
    """Record every violation of a rule, and count documents, losses and duplicates."""
    counters.count("documents in the ledger", len(facts.ledger))
    counters.count("unresolved", len(facts["unresolved"]))
    counters.count("reported by the comparison", len(facts.findings))
    for rule in RULES:
        for evidence in rule(facts):
            counters.violate(rule.__name__, evidence)
    for rule in rules.RULES:
        for evidence in rule(facts):
            counters.count(rules.name_cases(rule))
            if evidence:
                counters.violate(rule.__name__, evidence)
    duplicates = sum(len(group) - 1 for group in _group_ledger(facts.ledger).values())
    counters.count("refused duplicates" if facts.detects else "duplicates", duplicates)
    counters.count("duplicates", len([*live_twice(facts)]) if facts.detects else 0)
    counters.count("lost", len([*acknowledged_lost(facts)]))


# Rules about acknowledged effects


def acknowledged_lost(facts: Facts) -> Iterator[str]:
    """Yield the acknowledged effects that did not happen."""
    at_portal: dict[tuple[str, int, int], list[Entry]] = defaultdict(list)
    by_uuid = {entry["uuid"]: entry for entry in facts.ledger}
    for row in facts["documents"]:
        if row["uuid"] in by_uuid:
            at_portal[row["kind"], row["company_id"], row["record_id"]].append(by_uuid[row["uuid"]])
    for known in facts.known.records:
        if known.id is not None:
            key = (known.kind.name, known.company, known.id)
            for loss in _find_losses(known, facts.records.get(key), at_portal[key]):
                name = f"{known.kind.name} {known.id} of company {known.company}"
                yield f"{name}, {known.history}: {loss}"


def _find_losses(
    known: Record, row: asyncpg.Record | None, at_portal: Sequence[Entry]
) -> Iterator[str]:
    """Describe each difference from the acknowledged effects.

    `at_portal` are the portal's documents of the record.
    """
    if row is None or (row["is_deleted"] and not (known.is_deleted or known.may_be_deleted)):
        yield "created, but it does not exist"
        return
    if known.is_deleted and not row["is_deleted"]:
        yield "deleted, but it exists"
    if known.text is not None and row["text"] not in {known.text, *known.possible}:
        yield f"{row['text']!r} instead of {known.text!r}"
    if known.is_submitted and not at_portal:
        yield "submitted, but it is not at the portal"
    if known.is_submitted and not known.may_be_cancelled and row["status"] != "Valid":
        yield f"submitted, but its status is {row['status']}"
    statuses = [entry["status"] for entry in at_portal]
    if statuses.count("Cancelled") < known.cancels:
        yield f"cancelled {known.cancels} times, but the statuses at the portal are {statuses}"


def promise_broken(facts: Facts) -> Iterator[str]:
    """Yield the submissions with a promised result that were released as not received."""
    for row in facts["documents"]:
        if row["on_absence"] == "retry" and row["state"] == "NotReceived":
            yield f"submission {row['submission_id']} of company {row['company_id']}"


# Rules about the portal


def _group_ledger(ledger: Sequence[Entry]) -> dict[tuple[str, str, str, str], list[Entry]]:
    """Return {identity of a sent document: its documents at the portal}."""
    groups: dict[tuple[str, str, str, str], list[Entry]] = defaultdict(list)
    for entry in ledger:
        identity = entry["taxpayer"], entry["number"], entry["type"], entry["issuedAt"]
        groups[identity].append(entry)
    return groups


def attempt_twice(facts: Facts) -> Iterator[str]:
    """Yield the sent documents that the portal has twice, refused duplicates excepted."""
    for identity, group in _group_ledger(facts.ledger).items():
        counted = [entry for entry in group if not facts.detects or entry["status"] not in CLOSED]
        if len(counted) > 1:
            yield f"{identity}: {[(entry['uuid'], entry['status']) for entry in group]}"


def live_twice(facts: Facts) -> Iterator[str]:
    """Yield the numbers that have more than one live document."""
    live: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in facts.ledger:
        if entry["status"] not in CLOSED:
            live[entry["taxpayer"], entry["number"]].append(entry["uuid"])
    yield from (f"{number}: {uuids}" for number, uuids in live.items() if len(uuids) > 1)


def unknown_to_us(facts: Facts) -> Iterator[str]:
    """Yield the portal's documents that the service does not have with uuid, hash and status.

    A document that the comparison reports, or a refused duplicate, may be unknown if `detects`.
    """
    reported = {finding["uuid"] for finding in facts.findings if facts.detects}
    ours = {
        row["uuid"]: (row["status"], row["number"], row["document_hash"])
        for row in facts["documents"]
        if row["uuid"]
    }
    for identity, group in _group_ledger(facts.ledger).items():
        for entry in group:
            known = ours.get(entry["uuid"])
            shown = (entry["status"], entry["number"], entry["sha256"])
            is_duplicate = facts.detects and len(group) > 1 and entry["status"] == "Invalid"
            if facts.detects and known == ("Valid", *shown[1:]) and entry["status"] == "Cancelled":
                # Processed after the settling time, which is too short: the next recheck finds it.
                continue
            is_excused = known is None and (is_duplicate or entry["uuid"] in reported)
            if known != shown and not is_excused:
                yield f"{identity} {entry['uuid']}: {shown} at the portal, {known} here"


def uuid_twice(facts: Facts) -> Iterator[str]:
    """Yield the uuids that belong to more than one submitted document, of any company."""
    owners: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in facts["documents"]:
        if row["uuid"]:
            owners[row["uuid"]].append((row["company_id"], row["number"]))
    yield from (f"{uuid}: {rows}" for uuid, rows in owners.items() if len(rows) > 1)


def found_by_the_comparison(facts: Facts) -> Iterator[str]:
    """Yield unexpected findings of the comparison.

    With a sufficient settling time every finding is unexpected, else all but documents that were
    released too early.
    """
    at_portal = {entry["uuid"]: entry["status"] for entry in facts.ledger}
    ours = {row["uuid"] for row in facts["documents"]}
    for finding in facts.findings:
        uuid = finding["uuid"]
        is_released = at_portal.get(uuid) not in CLOSED and uuid not in ours
        if not (facts.detects and finding["kind"] == "orphan" and is_released):
            yield str(finding)


def unknown_to_the_portal(facts: Facts) -> Iterator[str]:
    """Yield the uuids that the service has and the portal has not."""
    ours = {row["uuid"]: row["number"] for row in facts["documents"] if row["uuid"]}
    for uuid in ours.keys() - {entry["uuid"] for entry in facts.ledger}:
        yield f"{uuid} of {ours[uuid]}"


# Rules about the service


def unresolved(facts: Facts) -> Iterator[str]:
    """Yield the submissions that are not finished."""
    yield from (str(dict(row)) for row in facts["unresolved"])


def needs_person(facts: Facts) -> Iterator[str]:
    """Yield the submissions in manual review, which no error of this kind requires."""
    yield from (str(dict(row)) for row in facts["persons"])


def locked_changed(facts: Facts) -> Iterator[str]:
    """Yield the sent documents whose hash, or whose record's first line, differs from the bytes."""
    for row in facts["documents"]:
        if row["status"] in ("Submitted", "Valid", "Submitting"):
            sha256 = hashlib.sha256(row["content"]).hexdigest()
            item = json.loads(row["content"])["Invoice"][0]["InvoiceLine"][0]["Item"][0]
            text = item["Description"][0]["_"]
            stored = facts.records[row["kind"], row["company_id"], row["record_id"]]["text"]
            if sha256 != row["document_hash"] or stored not in (None, text):
                name = f"{row['number']} of company {row['company_id']}"
                yield f"{name}: sent {text!r}, stored {stored!r}"


RULES = (
    acknowledged_lost,
    promise_broken,
    attempt_twice,
    live_twice,
    uuid_twice,
    unknown_to_us,
    found_by_the_comparison,
    unknown_to_the_portal,
    unresolved,
    needs_person,
    locked_changed,
)
