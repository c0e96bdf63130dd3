"""What became of everything after the faults, by the portal's ledger, the database, and what clients were told."""

import asyncio
import base64
import hashlib
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from service.commands.reconcile import reconcile
from service.config import read_config
from service.db.statements import Statements
from service.db.transactions import TRANSIENT_DB_ERRORS

sql = Statements(Path(__file__).resolve().parent)
CLOSED = {"Invalid", "Cancelled"}


@dataclass
class Facts:
    """`told` are the clients' Records, `ledger` the portal's documents, the other members rows of the service's tables.

    `detects`: the portal finds duplicates itself, so that it may have refused the second of two, and the settling time is
    too short, so that what is there may have been let go: the sweep has to say so.
    """

    told: list
    ledger: list
    records: list
    documents: list
    bodies: list
    unresolved: list
    persons: list
    detects: bool = False
    findings: tuple = ()  # of the sweep: {kind, uuid, ...}


async def submit_automatically(url, company):
    """Sets the company to have submitted by itself what is ready."""
    conn = await asyncpg.connect(url)
    try:
        await sql.company_automatic(conn, company_id=company)
    finally:
        await conn.close()


async def most_claims(url: str) -> int:
    """Return the most claims without a result that a submission has now; 0 while PostgreSQL is away."""
    try:
        conn = await asyncpg.connect(url)
    except TRANSIENT_DB_ERRORS:
        return 0
    try:
        return await sql.most_claims(conn)
    except TRANSIENT_DB_ERRORS:
        return 0
    finally:
        conn.terminate()


async def settled(url, seconds):
    """Waits until nothing is under way any more. Returns the seconds it took, None when it took too long."""
    conn, began = await asyncpg.connect(url), time.monotonic()
    try:
        while await sql.unresolved_all(conn):
            if time.monotonic() - began > seconds:
                return None
            await asyncio.sleep(0.2)
        return time.monotonic() - began
    finally:
        await conn.close()


async def swept(environment):
    """What the service's own comparison with the portal finds, as by hand."""
    result = await reconcile(read_config(environment))
    return [finding for company in result["companies"] for finding in company["findings"]]


async def collected(url, portal, told, detects, findings=()):
    """The Facts, once nothing moves any more. `url` is of a login that sees everything."""
    conn = await asyncpg.connect(url)
    try:
        names = ("records", "documents", "bodies", "unresolved", "persons")
        rows = {name: await getattr(sql, f"{name}_all")(conn) for name in names}
    finally:
        await conn.close()
    return Facts(told, await portal.ledger(), **rows, detects=detects, findings=findings)


def judge(facts, counters):
    """Writes every violation down, with its evidence, and counts what there is."""
    counters.count("documents in the ledger", len(facts.ledger))
    counters.count("unresolved", len(facts.unresolved))
    counters.count("said by the sweep", len(facts.findings))
    for rule in RULES:
        for evidence in rule(facts):
            counters.violate(rule.__name__, evidence)
    twins = sum(len(group) - 1 for group in _attempts(facts.ledger).values())
    counters.count("refused twins" if facts.detects else "duplicates", twins)
    counters.count("duplicates", len([*live_twice(facts)]) if facts.detects else 0)
    counters.count("lost", len([*acknowledged_lost(facts)]))


# Effects


def acknowledged_lost(facts):
    """Each acknowledged effect is there."""
    rows = {(row["kind"], row["company_id"], row["id"]): row for row in facts.records}
    at_portal = defaultdict(list)
    by_uuid = {there["uuid"]: there for there in facts.ledger}
    for row in facts.documents:
        if row["uuid"] in by_uuid:
            at_portal[row["kind"], row["company_id"], row["record_id"]].append(by_uuid[row["uuid"]])
    for known in facts.told:
        key = (known.kind.name, known.company, known.id)
        if known.id is not None:
            for loss in _losses(known, rows.get(key), at_portal[key]):
                yield f"{known.kind.name} {known.id} of company {known.company}, {known.history}: {loss}"


def _losses(known, row, at_portal):
    """Describe each difference from the acknowledged effects; `at_portal` are the portal's documents of the record."""
    if row is None or (row["is_deleted"] and not (known.is_deleted or known.may_be_deleted)):
        yield "created, and not there"
        return
    if known.is_deleted and not row["is_deleted"]:
        yield "deleted, and there"
    if known.text is not None and row["text"] not in {known.text, *known.possible}:
        yield f"{row['text']!r}, and not {known.text!r}"
    if known.is_submitted and not at_portal:
        yield "submitted, and not at the portal"
    if known.is_submitted and not known.may_be_cancelled and row["status"] != "Valid":
        yield f"submitted, and {row['status']}"
    if sum(there["status"] == "Cancelled" for there in at_portal) < known.cancels:
        yield f"cancelled {known.cancels} times, and at the portal {[there['status'] for there in at_portal]}"


def promise_broken(facts):
    """What was promised to be sent is not let go because it did not arrive."""
    for row in facts.documents:
        if row["on_absence"] == "retry" and row["state"] == "NotReceived":
            yield f"submission {row['submission_id']} of company {row['company_id']}"


# The portal


def _attempts(ledger):
    """{identity of an attempt: its documents at the portal}"""
    found = defaultdict(list)
    for there in ledger:
        found[there["taxpayer"], there["number"], there["type"], there["issuedAt"]].append(there)
    return found


def attempt_twice(facts):
    """One attempt, one document; a portal that detects duplicates has refused the others."""
    for attempt, group in _attempts(facts.ledger).items():
        counted = [there for there in group if not facts.detects or there["status"] not in CLOSED]
        if len(counted) > 1:
            yield f"{attempt}: {[(there['uuid'], there['status']) for there in group]}"


def live_twice(facts):
    """Of one invoice at most one document is live."""
    live = defaultdict(list)
    for there in facts.ledger:
        if there["status"] not in CLOSED:
            live[there["taxpayer"], there["number"]].append(there["uuid"])
    yield from (f"{number}: {uuids}" for number, uuids in live.items() if len(uuids) > 1)


def unknown_to_us(facts):
    """Every document at the portal is one of ours, with its uuid, its bytes and its status, or the sweep says that it is not."""
    said = {finding["uuid"] for finding in facts.findings if facts.detects}
    ours = {
        row["uuid"]: (row["status"], row["number"], row["document_hash"])
        for row in facts.documents
        if row["uuid"]
    }
    for attempt, group in _attempts(facts.ledger).items():
        for there in group:
            known, shown = (
                ours.get(there["uuid"]),
                (there["status"], there["number"], there["sha256"]),
            )
            is_refused_twin = facts.detects and len(group) > 1 and there["status"] == "Invalid"
            if facts.detects and known == ("Valid", *shown[1:]) and there["status"] == "Cancelled":
                # Processed after the settling time, which is too short: the next recheck finds it
                continue
            if known != shown and not (
                known is None and (is_refused_twin or there["uuid"] in said)
            ):
                yield f"{attempt} {there['uuid']}: there {shown}, here {known}"


def uuid_twice(facts):
    """A uuid of the portal belongs to one submitted document, whatever company it is of."""
    owners = defaultdict(list)
    for row in facts.documents:
        if row["uuid"]:
            owners[row["uuid"]].append((row["company_id"], row["number"]))
    yield from (f"{uuid}: {rows}" for uuid, rows in owners.items() if len(rows) > 1)


def found_by_the_sweep(facts):
    """The sweep finds nothing where the settling time suffices; else what was let go too early, and nothing else."""
    at_portal = {there["uuid"]: there["status"] for there in facts.ledger}
    ours = {row["uuid"] for row in facts.documents}
    for finding in facts.findings:
        let_go = at_portal.get(finding["uuid"]) not in CLOSED and finding["uuid"] not in ours
        if not (facts.detects and finding["kind"] == "orphan" and let_go):
            yield str(finding)


def unknown_to_the_portal(facts):
    """Every uuid of ours is the portal's."""
    ours = {row["uuid"]: row["number"] for row in facts.documents if row["uuid"]}
    for uuid in ours.keys() - {there["uuid"] for there in facts.ledger}:
        yield f"{uuid} of {ours[uuid]}"


# Ours


def unresolved(facts):
    """Nothing is under way any more."""
    yield from (str(dict(row)) for row in facts.unresolved)


def needs_person(facts):
    """No fault of this kind is one that a person has to look at."""
    yield from (str(dict(row)) for row in facts.persons)


def locked_changed(facts):
    """The bytes of a document that was sent are those of its hash, and its record has the same first line."""
    texts = {(row["kind"], row["company_id"], row["id"]): row["text"] for row in facts.records}
    frozen = {(row["company_id"], row["id"]): _frozen(row["body"]) for row in facts.bodies}
    for row in facts.documents:
        if row["status"] in ("Submitted", "Valid", "Submitting"):
            sha256, text = frozen[row["company_id"], row["submission_id"]].get(
                row["number"], (None, None)
            )
            stored = texts[row["kind"], row["company_id"], row["record_id"]]
            if sha256 != row["document_hash"] or stored not in (None, text):
                yield f"{row['number']} of company {row['company_id']}: sent {text!r}, stored {stored!r}"


def _frozen(body):
    """{number: (hash, text of the first line)} of the documents in a call."""
    found = {}
    for entry in json.loads(body)["documents"]:
        raw = base64.b64decode(entry["document"])
        item = json.loads(raw)["Invoice"][0]["InvoiceLine"][0]["Item"][0]
        found[entry["codeNumber"]] = hashlib.sha256(raw).hexdigest(), item["Description"][0]["_"]
    return found


RULES = (
    acknowledged_lost,
    promise_broken,
    attempt_twice,
    live_twice,
    uuid_twice,
    unknown_to_us,
    found_by_the_sweep,
    unknown_to_the_portal,
    unresolved,
    needs_person,
    locked_changed,
)
