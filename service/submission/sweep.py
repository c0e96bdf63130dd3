"""The sweep: compares the portal's listing of a company with its submitted documents, and back.

It finds what prevention cannot: rows that a restore lost, commits that a failover lost, documents
that the portal processed long after they seemed not received. While a company's sending is held,
only a sweep without unaccounted documents ends the hold.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from service import json_codec
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database
from service.loops import Loop
from service.portal.errors import PortalError
from service.portal.responses import Document, Listing, OddRow
from service.submission import sweep_rules
from service.submission.context import CompanyContext, SubmissionContext
from service.submission.odd_rows import record_odd_rows
from service.submission.sweep_rules import Finding, Row, Verdict
from service.submission.types import CLOCK_TOLERANCE

log = logging.getLogger(__name__)

MOST_DAYS = 31  # and the range of a sweep that ends a hold
LONGEST_LISTING = timedelta(days=30)  # the portal lists 31 days at most. Portal: 5.5
BLOCK = 2000  # listed documents that are looked up at a time
#: Minimum time for which the finding of a foreign cancellation stays open.
CANCELLATIONS_SHOWN = timedelta(days=1)
LONGEST_SLEEP = 15.0  # seconds between two checks for a company that is due

ADOPTED = {
    "code": "SweepAdopted",
    "path": "",
    "message": "The portal has the document although it seemed not to be sent.",
}
STOPPED = {
    "code": "NumberAtPortal",
    "path": "",
    "message": "The portal has another document with this number, {}, which does not belong to any "
    "submission of this service.",
}


@dataclass(frozen=True, slots=True)
class _Span:
    """The time range in which one TIN of a company is compared. `until` is the database's now."""

    company_id: int
    tin: str
    since: datetime
    until: datetime
    is_held: bool  # sending is held


async def sweep(context: SubmissionContext, company_id: int, days: int = 1) -> dict[str, Any]:
    """Compare a company with the portal over some days, and store the findings.

    Return {company_id, days, listed, adopted, stopped, found, resolved, held, findings}: counts,
    whether sending is held, and the open findings. A company whose sending is held is compared over
    31 days. A TIN that is not verified is not listed, and the hold of a company without a verified
    TIN does not end. Raises PortalError.
    """
    length = timedelta(days=days)
    context = await context.sign_in(company_id)
    async with context.database.reading(company_id) as conn:
        scope = await sql.sweep_ground(
            conn, company_id=company_id, span=length, most=timedelta(days=MOST_DAYS)
        )
    is_held, now = scope["held_since"] is not None, scope["now"]
    if is_held:
        days, length = MOST_DAYS, timedelta(days=MOST_DAYS)
    counts: dict[str, int] = dict.fromkeys(("listed", "adopted", "stopped", "found", "resolved"), 0)
    verified = [scope["own_tin"]] if scope["own_tin"] else []
    for tin in {*verified, *scope["tins"]}:
        span = _Span(company_id, tin, now - length, now, is_held)
        for name, n in (await _compare(context, span)).items():
            counts[name] += n
    async with context.database.company(company_id) as conn:
        await sql.sweep_done(
            conn,
            company_id=company_id,
            swept_at=now,
            listed=counts["listed"],
            found=counts["found"],
        )
        released = verified and await sql.hold_release(
            conn, company_id=company_id, settle=context.config.portal_settle
        )
        findings = [dict(row) for row in await sql.findings_open(conn, company_id=company_id)]
    held = is_held and not released
    return {"company_id": company_id, "days": days, **counts, "held": held, "findings": findings}


async def _compare(context: CompanyContext, span: _Span) -> dict[str, int]:
    """Compare one TIN, store the result and return its counts."""
    company_id, tin = span.company_id, span.tin
    listing = await _list(context, span)
    await record_odd_rows(context, company_id, tin, "search", listing)
    settled_at = span.until - context.config.portal_settle
    async with context.database.reading(company_id) as conn:
        attempts = await _load_attempts(conn, company_id, listing)
        elsewhere = await _find_elsewhere(conn, span, listing, attempts)
        shared = await _find_shared(conn, company_id, listing, attempts)
        expected = await sql.sweep_expected(
            conn,
            company_id=company_id,
            tin=tin,
            since=span.since,
            until=settled_at,
            is_own=context.portal.uses_own_client(tin),
        )
    verdict = sweep_rules.judge_listing(
        tin, listing, attempts, elsewhere, None if span.is_held else settled_at
    )
    verdict.findings += sweep_rules.find_missing(tin, listing, expected, listing.odd)
    verdict.findings += sweep_rules.find_shared(tin, listing, attempts, shared)
    if span.is_held:  # an unreadable row may be a document whose rows were lost
        verdict.findings += sweep_rules.find_unreadable(tin, listing.odd, attempts)
    return {"listed": len(listing), **await _store(context, span, verdict, listing)}


async def _load_attempts(conn: Connection, company_id: int, listing: Listing) -> list[Row]:
    """Return the submitted documents that may be listed, oldest first, read in blocks."""
    rows: dict[int, Row] = {}
    for start in range(0, len(listing), BLOCK):
        block = listing[start : start + BLOCK]
        uuids, numbers = [one.uuid for one in block], [one.number for one in block]
        found = await sql.sweep_attempts(conn, company_id=company_id, uuids=uuids, numbers=numbers)
        rows |= {row["id"]: row for row in found}
    if keys := [row.key for row in listing.odd]:
        found = await sql.sweep_attempts(conn, company_id=company_id, uuids=keys, numbers=[])
        rows |= {row["id"]: row for row in found}
    return [rows[document_id] for document_id in sorted(rows)]


async def _find_elsewhere(
    conn: Connection, span: _Span, listing: Sequence[Document], attempts: Sequence[Row]
) -> set[str]:
    """Return the listed uuids of other companies, recorded or possibly sent with no outcome yet."""
    own = {row["uuid"] for row in attempts}
    unknown = [listed for listed in listing if listed.uuid not in own]
    if not unknown:
        return set()
    company_id, uuids = span.company_id, [listed.uuid for listed in unknown]
    rows = await sql.sweep_elsewhere(conn, company_id=company_id, uuids=uuids)
    found = {row["uuid"] for row in rows}
    if await sql.tin_is_shared(conn, company_id=company_id, tin=span.tin):
        rows = await sql.sweep_attempted_elsewhere(
            conn,
            company_id=company_id,
            tin=span.tin,
            uuids=uuids,
            numbers=[listed.number for listed in unknown],
            types=[listed.type_code for listed in unknown],
            issue_times=[listed.issued_at for listed in unknown],
        )
        found |= {row["uuid"] for row in rows}
    return found


async def _find_shared(
    conn: Connection, company_id: int, listing: Sequence[Document], attempts: Sequence[Row]
) -> set[str]:
    """Return the listed uuids of the company that other companies have recorded too."""
    own = list({listed.uuid for listed in listing} & {row["uuid"] for row in attempts})
    rows = await sql.sweep_shared(conn, company_id=company_id, uuids=own) if own else []
    return {row["uuid"] for row in rows}


async def _list(context: CompanyContext, span: _Span) -> Listing:
    """Return the documents of a time range, each once, from as many listings as needed."""
    since, until = span.since - CLOCK_TOLERANCE, span.until + CLOCK_TOLERANCE
    rows: dict[str, Document] = {}
    odd: dict[str, OddRow] = {}
    while since < until:
        to = min(until, since + LONGEST_LISTING)
        found = await context.portal.search(span.tin, since, to, further=bool(rows))
        rows.update((listed.uuid, listed) for listed in found)
        odd.update((row.key, row) for row in found.odd)
        since = to
    return Listing(rows.values(), odd.values())


async def _store(
    context: SubmissionContext, span: _Span, verdict: Verdict, listing: Sequence[Document]
) -> dict[str, int]:
    """Store a verdict in one transaction and return its counts."""
    company_id = span.company_id
    async with context.database.company(company_id) as conn:
        adopted = 0
        for submission_id, listed in verdict.adopt.items():
            adopted += bool(await _adopt(conn, span, submission_id, listed))
        stopped = 0
        for submission_id, listed in verdict.stop.items():
            stopped += bool(await _stop(conn, company_id, submission_id, listed))
        for submission_id, listed in verdict.sightings:
            await _record_sighting(conn, company_id, submission_id, listed)
        new, cleared = await _store_findings(conn, span, verdict.findings, listing)
    for one in new:
        facts = (one.kind, one.number, one.uuid, one.other_uuid)
        log.warning("sweep company=%d kind=%s number=%s uuid=%s other=%s", company_id, *facts)
    if adopted:
        context.due.set()
    return {"adopted": adopted, "stopped": stopped, "found": len(new), "resolved": cleared}


async def _store_findings(
    conn: Connection, span: _Span, findings: Sequence[Finding], listing: Sequence[Document]
) -> tuple[list[Finding], int]:
    """Insert findings and clear those that no longer apply. Return the new ones and the cleared.

    Findings are inserted in the order of their keys, as `findings_insert_cancelled` does.
    """
    new = [
        one
        for one in sorted(findings, key=lambda finding: finding.key)
        if await sql.finding_insert(conn, company_id=span.company_id, **asdict(one))
    ]
    cleared = await sql.findings_clear(
        conn,
        company_id=span.company_id,
        tin=span.tin,
        since=span.since,
        until=span.until + CLOCK_TOLERANCE,
        still=[one.key for one in findings],
        listed=[listed.uuid for listed in listing],
    )
    expired = await sql.findings_expire(conn, company_id=span.company_id, after=CANCELLATIONS_SHOWN)
    return new, len(cleared) + len(expired)


async def _adopt(conn: Connection, span: _Span, submission_id: int, listed: Document) -> Any:
    """Make a Queued submission Uncertain: reconciliation will find and adopt the document."""
    await _record_sighting(conn, span.company_id, submission_id, listed)
    return await sql.sweep_adopt(
        conn,
        company_id=span.company_id,
        id=submission_id,
        received_at=listed.received_at or span.until,
        last_error=json_codec.dumps(ADOPTED),
    )


async def _stop(conn: Connection, company_id: int, submission_id: int, listed: Document) -> Any:
    error = {**STOPPED, "message": STOPPED["message"].format(listed.uuid)}
    return await sql.sweep_stop(
        conn, company_id=company_id, id=submission_id, last_error=json_codec.dumps(error)
    )


async def _record_sighting(
    conn: Connection, company_id: int, submission_id: int, listed: Document
) -> None:
    """Record a listed document for manual review. Its identity is checked when it is adopted."""
    await sql.sighting_insert(
        conn,
        company_id=company_id,
        submission_id=submission_id,
        numbers=[listed.number],
        uuids=[listed.uuid],
        submission_uid=listed.submission_uid,
        via="listed",
    )


async def record_database_identity(database: Database) -> None:
    """Hold sending if this is another database than before, whose rows may be outdated."""
    async with database.across() as conn:
        if await sql.database_note(conn):
            log.warning(
                "This is another database than before: sending is held for each company until it "
                "was compared with the portal."
            )


class Sweeper(Loop):
    """Sweeps companies as they become due. Any number of processes share this by claims.

    It is woken when PostgreSQL was unavailable and may be another database now.
    """

    def __init__(self, context: SubmissionContext) -> None:
        pause = min(LONGEST_SLEEP, context.config.sweep.total_seconds() / 4)
        super().__init__("sweep", pause, TRANSIENT_DB_ERRORS)
        self._context = context

    async def work(self) -> float | None:
        """Sweep the next due company. If it is interrupted, the next claim repeats it."""
        await record_database_identity(self._context.database)
        return 0 if await self._sweep_next() else None

    async def _sweep_next(self) -> bool:
        """Sweep the next due company, and return whether there was one.

        A company whose sweep failed is tried again when its claim expires.
        """
        config = self._context.config
        if self._context.is_held("search"):
            return False
        async with self._context.database.across() as conn:
            row: Mapping[str, Any] | None = await sql.sweep_claim(
                conn, lease=config.portal_lease * 5, every=config.sweep, settle=config.portal_settle
            )
        if row is None:
            return False
        try:
            await sweep(self._context, row["company_id"])
        except PortalError as error:
            log.info("sweep company=%d: %s", row["company_id"], error)
            await self._context.apply_throttle(error, "search")
        return True
