"""The sweep: compares the portal's listing of a company with its submitted documents, and back.

It finds what prevention cannot: rows that a restore lost, commits that a failover lost, documents
that the portal processed long after they seemed not received. While a company's sending is held,
only a sweep without unaccounted documents ends the hold.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from service import json_codec
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transient_errors import TRANSIENT_DB_ERRORS
from service.errors import describe_error
from service.loops import Loop, running
from service.portal.documents import Document
from service.portal.errors import NotSent, PortalError, Throttled, Unclear
from service.portal.listings import Listing
from service.submission import store, sweep_rules
from service.submission.context import CompanyContext, SubmissionContext
from service.submission.later_states import follow_listing
from service.submission.odd_rows import record_odd_rows
from service.submission.send import compare_clocks, describe_clocks_apart
from service.submission.sweep_rules import FURTHEST, Row, SweepFinding, Verdict
from service.submission.types import CLOCK_TOLERANCE

log = logging.getLogger(__name__)

BLOCK = 2000  # listed documents that are looked up at a time
#: Minimum time for which the finding of a foreign cancellation stays open.
CANCELLATIONS_SHOWN = timedelta(days=1)
LONGEST_SLEEP = 15.0  # seconds between two checks for a company that is due
RENEWALS = 3  # of a claim, per lease
MOST_FAILURES = 3  # of one page of a listing, before the sweep fails
#: Maximum wait for a company's own client, which other companies do not need.
OWN_CLIENT_PATIENCE = timedelta(seconds=90)
LONGEST_BACKOFF = 16  # leases, after failures in a row

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


async def sweep(
    context: SubmissionContext, company_id: int, days: int | None = None
) -> dict[str, Any]:
    """Compare a company with the portal, store the findings and take over later states.

    Return {company_id, days, listed, adopted, stopped, found, resolved, held, findings}: the time
    that was compared, rounded up, counts, whether sending is held, and the open findings. A company
    is compared over all that may have changed since the latest complete comparison, and at least
    over `days`; while its sending is held, over FURTHEST, or since the time until which everything
    sent is recorded. A TIN that is not verified is not listed, and the hold of a company without a
    verified TIN does not end. Raises PortalError.
    """
    context = await context.sign_in(company_id)
    async with context.database.reading(company_id) as conn:
        basis = await sql.sweep_basis(conn, company_id=company_id, furthest=FURTHEST)
        since = sweep_rules.first_moment(basis, days)
        rows = await sql.sweep_tins(conn, company_id=company_id, since=since)
    is_held, now = basis["held_since"] is not None, basis["now"]
    counts: dict[str, int] = dict.fromkeys(("listed", "adopted", "stopped", "found", "resolved"), 0)
    verified = {basis["own_tin"]} if basis["own_tin"] else set()
    for tin in verified | {row["tin"] for row in rows}:
        span = _Span(company_id, tin, since, now, is_held)
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
    days = math.ceil((now - since) / timedelta(days=1))
    return {"company_id": company_id, "days": days, **counts, "held": held, "findings": findings}


async def _compare(context: CompanyContext, span: _Span) -> dict[str, int]:
    """Compare one TIN, store the result and return its counts.

    Raises PortalError, also if the clocks differ while sending is held: the settling time cannot be
    measured then.
    """
    company_id, tin = span.company_id, span.tin
    listing = await context.portal.search(
        tin, span.since - CLOCK_TOLERANCE, span.until + CLOCK_TOLERANCE
    )
    await record_odd_rows(context, company_id, tin, "search", listing)
    if span.is_held and (difference := await compare_clocks(context, context.portal, tin)):
        raise NotSent(describe_clocks_apart(difference)["message"])
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
    await follow_listing(context, company_id, listing, attempts)
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
    conn: Connection, span: _Span, findings: Sequence[SweepFinding], listing: Sequence[Document]
) -> tuple[list[SweepFinding], int]:
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
    shown = (submission_id, listed.uuid, listed.number, listed.submission_uid, "listed")
    await store.insert_sightings(conn, company_id, [shown])


class Sweeper(Loop):
    """Sweeps companies as they become due. Any number of processes share this by claims.

    One loop sweeps the companies whose sending is held, another one the others, so that a long
    comparison does not prolong the holds.
    """

    def __init__(self, context: SubmissionContext, of_held: bool) -> None:
        self._of_held = of_held
        pause = min(LONGEST_SLEEP, context.config.sweep.total_seconds() / 4)
        super().__init__("sweep", pause, TRANSIENT_DB_ERRORS)
        portal = context.shared_portal.with_retries(self._retry_page)
        self._context = replace(context, shared_portal=portal)

    async def work(self) -> float | None:
        """Sweep the next due company. If it is interrupted, the next claim repeats it."""
        return 0 if await self._sweep_next() else None

    async def _sweep_next(self) -> bool:
        """Sweep the next due company, and return whether the next one should follow at once.

        A company whose sweep failed is tried again later, with backoff.
        """
        config = self._context.config
        async with self._context.database.across() as conn:
            row: Mapping[str, Any] | None = await sql.sweep_claim(
                conn,
                lease=config.portal_lease,
                every=config.sweep,
                settle=config.portal_settle,
                changing=sweep_rules.CHANGING,
                furthest=FURTHEST,
                of_held=self._of_held,
            )
        if row is None:
            return False
        try:
            async with _hold_claim(self._context, row["company_id"], row["fence"]):
                await sweep(self._context, row["company_id"])
        except PortalError as error:
            log.info("sweep company=%d: %s", row["company_id"], error)
            await self._context.apply_throttle(error, "search")
            return not isinstance(error, NotSent)  # the portal cannot be reached for others either
        return True

    async def _retry_page(self, error: PortalError, failures: int) -> bool:
        """Wait until a page that failed can be requested again, and return whether to do it.

        The claim and the pages before are kept. For a token of the operator's client, or the end of
        its pause, a sweep waits as long as necessary, because no other company could be compared
        meanwhile.
        """
        if isinstance(error, Throttled):
            await self._context.apply_throttle(error, "search")
            wait = error.retry_after
            if error.own_client_id is not None and (
                failures > MOST_FAILURES or wait > OWN_CLIENT_PATIENCE
            ):
                return False
        elif failures < MOST_FAILURES and isinstance(error, NotSent | Unclear):
            wait = self._context.config.portal_retry * failures
        else:
            return False
        await asyncio.sleep(wait.total_seconds())
        return True


@asynccontextmanager
async def _hold_claim(
    context: SubmissionContext, company_id: int, fence: int
) -> AsyncIterator[None]:
    """Renew the claim on a company's comparison during the block, and release it at the end.

    After an error the next comparison begins later, with backoff. After a cancellation, which ends
    the process, another process can begin at once.
    """
    lease = context.config.portal_lease
    pause = None
    try:
        async with running(_renew_claim(context, company_id, fence)):
            yield
    except Exception:
        pause = lease
        raise
    finally:
        with suppress(*TRANSIENT_DB_ERRORS):  # otherwise it ends with its lease
            async with context.database.company(company_id) as conn:
                await sql.sweep_end(
                    conn,
                    company_id=company_id,
                    fence=fence,
                    pause=pause,
                    longest=lease * LONGEST_BACKOFF,
                )


async def _renew_claim(context: SubmissionContext, company_id: int, fence: int) -> None:
    """Renew a claim RENEWALS times per lease until it is lost."""
    lease, is_ours = context.config.portal_lease, True
    while is_ours:
        await asyncio.sleep(lease.total_seconds() / RENEWALS)
        try:
            async with context.database.company(company_id) as conn:
                is_ours = await sql.sweep_keep(
                    conn, company_id=company_id, fence=fence, lease=lease
                )
        except TRANSIENT_DB_ERRORS as error:
            log.warning("sweep company=%d: not renewed: %s", company_id, describe_error(error))
