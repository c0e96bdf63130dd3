"""The comparison of a company's documents with the portal's listing, in both directions.

It decides about submissions with an unknown outcome, and finds what prevention cannot: rows that a
restore lost, commits that a failover lost, documents that the portal processed long after they
seemed not received. One process at a time compares a company, for one of three reasons:

- unknown: the outcome of submissions is unknown. The listing covers their sends, and ends as soon
  as all of them are decided.
- held: its sending is held. Only a complete comparison without unaccounted documents ends the hold.
- regular: documents may have changed since the latest complete comparison.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from service import json_codec
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transient_errors import TRANSIENT_DB_ERRORS
from service.loops import Loop
from service.portal.documents import Document
from service.portal.errors import NotSent, PortalError, Throttled, Unclear
from service.portal.listings import Collector, Listing, ListingPage
from service.submission import comparison_rules, store
from service.submission.comparison_claim import ComparisonClaim, ComparisonClaimLost, hold_claim
from service.submission.comparison_rules import FURTHEST, PortalFinding, Row, Verdict
from service.submission.context import CompanyContext, SubmissionContext
from service.submission.later_states import follow_listing
from service.submission.odd_rows import record_odd_rows
from service.submission.send import compare_clocks, describe_clocks_apart
from service.submission.types import CLOCK_TOLERANCE, ListingEnded
from service.submission.unknown_outcomes import UnknownOutcomes, describe_failure

log = logging.getLogger(__name__)

UNKNOWN, HELD, REGULAR = "unknown", "held", "regular"

BLOCK = 2000  # listed documents that are looked up at a time
#: Minimum time for which the finding of a foreign cancellation stays open.
CANCELLATIONS_SHOWN = timedelta(days=1)
LONGEST_SLEEP = 15.0  # seconds between two checks for a company that is due
MOST_FAILURES = 3  # of one page of a listing, before a complete comparison fails
#: Maximum wait for a company's own client, which other companies do not need.
OWN_CLIENT_PATIENCE = timedelta(seconds=90)

ADOPTED = {
    "code": "FoundAtPortal",
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
    """The time range in which one TIN of a company is compared. `until` is the database's now.

    `sent_until` is the time of the last send with an unknown outcome, if only such submissions are
    compared.
    """

    company_id: int
    tin: str
    since: datetime
    until: datetime
    is_held: bool = False  # sending is held
    sent_until: datetime | None = None

    @property
    def listed_from(self) -> datetime:
        """Return the start of the listing."""
        return self.since - CLOCK_TOLERANCE

    @property
    def ranges(self) -> list[tuple[datetime, datetime]]:
        """Return the time ranges to list, in this order.

        Of unknown outcomes, the first one covers the sends. Once it is over, its listing does not
        grow, however much is sent meanwhile. The second one lasts until now, in case the portal
        queued them.
        """
        until = self.until + CLOCK_TOLERANCE
        if self.sent_until is None or self.sent_until + CLOCK_TOLERANCE >= self.until:
            return [(self.listed_from, until)]
        over = self.sent_until + CLOCK_TOLERANCE
        return [(self.listed_from, over), (over, until)]


async def claim(context: SubmissionContext, reason: str, most: int = 1) -> list[tuple[int, int]]:
    """Claim companies that are due for a reason. Return their ids and fencing tokens.

    At most one is claimed to be compared completely.
    """
    config = context.config
    async with context.database.across() as conn:
        rows = await sql.comparison_claim(
            conn,
            reason=reason,
            most=most,
            lease=config.portal_lease,
            every=config.comparison,
            settle=config.portal_settle,
            changing=comparison_rules.CHANGING,
            furthest=FURTHEST,
        )
    return [(row["company_id"], row["fence"]) for row in rows]


async def look_up(context: SubmissionContext, company_id: int, fence: int) -> None:
    """Compare a claimed company to decide about its submissions with an unknown outcome."""
    try:
        async with hold_claim(context, company_id, fence, is_complete=False) as held:
            await _look_up(await context.sign_in(company_id), held)
    except ComparisonClaimLost as why:
        log.info("comparison %s", why)


async def _look_up(context: CompanyContext, held: ComparisonClaim) -> None:
    async with context.database.reading(held.company_id) as conn:
        rows = await sql.comparison_unknown(conn, company_id=held.company_id)
    for row in rows:
        span = _Span(
            held.company_id,
            row["tin"],
            row["first_sent_at"],
            row["now"],
            sent_until=row["last_sent_at"],
        )
        try:
            await _compare(context, span, held)
        except PortalError as error:
            log.info("comparison company=%d: %s", held.company_id, error)
            await context.apply_throttle(error, "search")


async def compare(
    context: SubmissionContext,
    company_id: int,
    days: int | None = None,
    held: ComparisonClaim | None = None,
) -> dict[str, Any]:
    """Compare a company completely, store the findings and take over later states.

    Return {company_id, days, listed, adopted, stopped, found, resolved, held, findings}: the time
    that was compared, rounded up, counts, whether sending is held, and the open findings. A company
    is compared over all that may have changed since the latest complete comparison, and at least
    over `days`; while its sending is held, over FURTHEST, or since the time until which everything
    sent is recorded. A TIN that is not verified is not listed, and the hold of a company without a
    verified TIN does not end. Without a claim, no unknown outcome is decided. Raises PortalError.
    """
    context = await context.sign_in(company_id)
    async with context.database.reading(company_id) as conn:
        basis = await sql.comparison_basis(conn, company_id=company_id, furthest=FURTHEST)
        since = comparison_rules.first_moment(basis, days)
        rows = await sql.comparison_tins(conn, company_id=company_id, since=since)
    is_held, now = basis["held_since"] is not None, basis["now"]
    counts: dict[str, int] = dict.fromkeys(("listed", "adopted", "stopped", "found", "resolved"), 0)
    verified = {basis["own_tin"]} if basis["own_tin"] else set()
    for tin in verified | {row["tin"] for row in rows}:
        span = _Span(company_id, tin, since, now, is_held)
        for name, n in (await _compare(context, span, held)).items():
            counts[name] += n
    async with context.database.company(company_id) as conn:
        await sql.comparison_done(
            conn,
            company_id=company_id,
            compared_at=now,
            listed=counts["listed"],
            found=counts["found"],
        )
        released = verified and await sql.hold_release(
            conn, company_id=company_id, settle=context.config.portal_settle
        )
        findings = [dict(row) for row in await sql.findings_open(conn, company_id=company_id)]
    is_still_held = is_held and not released
    days = math.ceil((now - since) / timedelta(days=1))
    return {
        "company_id": company_id,
        "days": days,
        **counts,
        "held": is_still_held,
        "findings": findings,
    }


async def _compare(
    context: CompanyContext, span: _Span, held: ComparisonClaim | None
) -> dict[str, int]:
    """Compare one TIN, decide about unknown outcomes, store the findings and return their counts.

    Raises PortalError, also if the clocks differ while sending is held: the settling time cannot be
    measured then. Otherwise no absence is confirmed while they differ.
    """
    unknown = held and UnknownOutcomes(context, held, span.tin, span.listed_from, span.until)
    try:
        listing = await _read_listing(context, span, unknown)
        if listing is None:
            return {}
        if unknown and (await unknown.count_left())["n"]:
            await unknown.read_last_receipts()
        else:
            unknown = None
        is_measured = span.is_held or unknown
        difference = (
            await compare_clocks(context, context.portal, span.tin) if is_measured else None
        )
    except PortalError as error:
        if unknown:
            await unknown.conclude(describe_failure(error))
        raise
    if unknown:
        await unknown.conclude(ListingEnded(span.until, complete=not difference))
    if span.is_held and difference:
        raise NotSent(describe_clocks_apart(difference)["message"])
    return await _judge(context, span, listing)


async def _read_listing(
    context: CompanyContext, span: _Span, unknown: UnknownOutcomes | None
) -> Listing | None:
    """Return the portal's listing. Adopt unknown outcomes page by page.

    Return None if only those were looked for and a listing could not decide more. Raises
    PortalError.
    """
    ends_early = span.sent_until is not None
    if unknown:
        left = await unknown.decide_before_listing()
        if ends_early and not left["open"]:
            if left["n"]:
                await unknown.conclude(ListingEnded(span.until, complete=False))
            return None
    found = Collector()
    is_continued = bool(unknown and unknown.searched)
    async with aclosing(_read_pages(context, span, is_continued)) as pages:
        async for page in pages:
            shown = Listing(page.rows, page.odd)
            await record_odd_rows(context, span.company_id, span.tin, "search", shown)
            found.add(page)
            if unknown:
                await unknown.compare_page(page)
                if ends_early and not (await unknown.count_left())["n"]:
                    return None
            if ends_early and context.stopping.is_set():
                return None
    return found.listing()


async def _read_pages(
    context: CompanyContext, span: _Span, is_continued: bool
) -> AsyncGenerator[ListingPage]:
    """Yield the pages of the listings of all ranges. Those that continue others keep their turn."""
    for since, until in span.ranges:
        async with aclosing(
            context.portal.pages(span.tin, since, until, further=is_continued)
        ) as pages:
            async for page in pages:
                yield page
        is_continued = True


async def _judge(context: CompanyContext, span: _Span, listing: Listing) -> dict[str, int]:
    """Compare a complete listing with the submitted documents, store the result, return counts."""
    company_id, tin = span.company_id, span.tin
    settled_at = span.until - context.config.portal_settle
    async with context.database.reading(company_id) as conn:
        attempts = await _load_attempts(conn, company_id, listing)
        elsewhere = await _find_elsewhere(conn, span, listing, attempts)
        shared = await _find_shared(conn, company_id, listing, attempts)
        expected = await sql.comparison_expected(
            conn,
            company_id=company_id,
            tin=tin,
            since=span.since,
            until=settled_at,
            is_own=context.portal.uses_own_client(tin),
        )
    verdict = comparison_rules.judge_listing(
        tin, listing, attempts, elsewhere, None if span.is_held else settled_at
    )
    verdict.findings += comparison_rules.find_missing(tin, listing, expected, listing.odd)
    verdict.findings += comparison_rules.find_shared(tin, listing, attempts, shared)
    if span.is_held:  # an unreadable row may be a document whose rows were lost
        verdict.findings += comparison_rules.find_unreadable(tin, listing.odd, attempts)
    await follow_listing(context, company_id, listing, attempts)
    return {"listed": len(listing), **await _store(context, span, verdict, listing)}


async def _load_attempts(conn: Connection, company_id: int, listing: Listing) -> list[Row]:
    """Return the submitted documents that may be listed, oldest first, read in blocks."""
    rows: dict[int, Row] = {}
    for start in range(0, len(listing), BLOCK):
        block = listing[start : start + BLOCK]
        uuids, numbers = [one.uuid for one in block], [one.number for one in block]
        found = await sql.comparison_attempts(
            conn, company_id=company_id, uuids=uuids, numbers=numbers
        )
        rows |= {row["id"]: row for row in found}
    if keys := [row.key for row in listing.odd]:
        found = await sql.comparison_attempts(conn, company_id=company_id, uuids=keys, numbers=[])
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
    rows = await sql.comparison_elsewhere(conn, company_id=company_id, uuids=uuids)
    found = {row["uuid"] for row in rows}
    if await sql.tin_is_shared(conn, company_id=company_id, tin=span.tin):
        rows = await sql.comparison_attempted_elsewhere(
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
    rows = await sql.comparison_shared(conn, company_id=company_id, uuids=own) if own else []
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
        log.warning("comparison company=%d kind=%s number=%s uuid=%s other=%s", company_id, *facts)
    if adopted:
        context.due.set()
    return {"adopted": adopted, "stopped": stopped, "found": len(new), "resolved": cleared}


async def _store_findings(
    conn: Connection, span: _Span, findings: Sequence[PortalFinding], listing: Sequence[Document]
) -> tuple[list[PortalFinding], int]:
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
    """Make a Queued submission Uncertain: the next comparison adopts its document."""
    await _record_sighting(conn, span.company_id, submission_id, listed)
    return await sql.comparison_adopt(
        conn,
        company_id=span.company_id,
        id=submission_id,
        received_at=listed.received_at or span.until,
        last_error=json_codec.dumps(ADOPTED),
    )


async def _stop(conn: Connection, company_id: int, submission_id: int, listed: Document) -> Any:
    error = {**STOPPED, "message": STOPPED["message"].format(listed.uuid)}
    return await sql.comparison_stop(
        conn, company_id=company_id, id=submission_id, last_error=json_codec.dumps(error)
    )


async def _record_sighting(
    conn: Connection, company_id: int, submission_id: int, listed: Document
) -> None:
    """Record a listed document for manual review. Its identity is checked when it is adopted."""
    shown = (submission_id, listed.uuid, listed.number, listed.submission_uid, "listed")
    await store.insert_sightings(conn, company_id, [shown])


class Comparer(Loop):
    """Compares companies completely as they become due. Processes share this by claims.

    One loop compares the companies whose sending is held, another one the others, so that a long
    comparison does not prolong the holds.
    """

    def __init__(self, context: SubmissionContext, reason: str) -> None:
        self._reason = reason
        pause = min(LONGEST_SLEEP, context.config.comparison.total_seconds() / 4)
        super().__init__("comparison", pause, TRANSIENT_DB_ERRORS)
        portal = context.shared_portal.with_retries(self._retry_page)
        self._context = replace(context, shared_portal=portal)

    async def work(self) -> float | None:
        """Compare the next due company. If it is interrupted, the next claim repeats it.

        The next one follows at once, unless the portal cannot be reached.
        """
        for company_id, fence in await claim(self._context, self._reason):
            try:
                async with hold_claim(self._context, company_id, fence, is_complete=True) as held:
                    await compare(self._context, company_id, held=held)
            except ComparisonClaimLost as why:
                log.info("comparison %s", why)
            except PortalError as error:
                log.info("comparison company=%d: %s", company_id, error)
                await self._context.apply_throttle(error, "search")
                if isinstance(error, NotSent):
                    return None
            return 0
        return None

    async def _retry_page(self, error: PortalError, failures: int) -> bool:
        """Wait until a page that failed can be requested again, and return whether to do it.

        The claim and the pages before are kept. For a token of the operator's client, or the end of
        its pause, it waits as long as necessary, because no other company could be compared
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
