"""The comparison of a company's documents with the portal's listing, in both directions.

It decides about submissions with an unknown outcome, and finds what prevention cannot: rows that a
restore lost, commits that a failover lost, documents that the portal processed long after they
seemed not received. One process at a time compares a company, for one of three reasons:

- unknown: the outcome of submissions is unknown. The listing begins with the first of their sends,
  at most FURTHEST ago, and is not read if all of them are decided without it.
- held: its sending is held. Only a complete comparison without unaccounted documents ends the hold.
- regular: documents may have changed since the latest complete comparison.
"""

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from service import json_codec
from service.db.connections import Connection, describe_or_trace
from service.db.statements import sql
from service.errors import make_reason
from service.json_types import JsonObject
from service.loops import running
from service.portal import rate_limits
from service.portal.documents import Document
from service.portal.errors import NotSent, PortalError, Throttled, Unclear
from service.portal.listings import Listing
from service.submission import store
from service.submission.context import CompanyContext, SubmissionContext
from service.submission.following.comparison_claim import (
    ComparisonClaim,
    ComparisonStopped,
    hold_claim,
)
from service.submission.following.later_states import follow_listing, record_odd_rows
from service.submission.following.unknown_outcomes import UnknownOutcomes, describe_failure
from service.submission.machine import comparison_rules
from service.submission.machine.comparison_rules import (
    FURTHEST,
    Attempt,
    BasisRow,
    ExpectedRow,
    PortalFinding,
    Verdict,
)
from service.submission.machine.types import CLOCK_TOLERANCE, ListingEnded
from service.submission.own_clients import sign_in

log = logging.getLogger(__name__)

UNKNOWN, HELD, REGULAR = "unknown", "held", "regular"
#: Reason -> the priority of its requests.
PRIORITIES = {UNKNOWN: rate_limits.USUAL, HELD: rate_limits.HELD, REGULAR: rate_limits.COMPARISON}

LOOK_UP_SECONDS = 60  # between two look-ups during a complete comparison
BLOCK = 2000  # listed documents that are looked up at a time
#: Minimum time for which the finding of a foreign cancellation stays open.
CANCELLATIONS_SHOWN = timedelta(days=1)
MOST_FAILURES = 3  # of one page of a listing, before a complete comparison fails
#: Maximum wait for a company's own client, which other companies do not need.
OWN_CLIENT_PATIENCE = timedelta(seconds=90)

ADOPTED = make_reason(
    "FoundAtPortal", "The portal has the document although it seemed not to be sent."
)
STOPPED = make_reason(
    "NumberAtPortal",
    "The portal has another document with this number, {}, which does not belong to any "
    "submission of this service.",
)


@dataclass(frozen=True, slots=True)
class _Span:
    """The time range in which one TIN of a company is compared. `until` is the database's now."""

    company_id: int
    tin: str
    since: datetime
    until: datetime
    is_held: bool  # sending is held
    is_complete: bool  # not for unknown outcomes alone

    @property
    def listed_from(self) -> datetime:
        return self.since - CLOCK_TOLERANCE


async def claim(context: SubmissionContext, reason: str, most: int = 1) -> list[tuple[int, int]]:
    """Claim companies that are due for a reason. Return their ids and fencing tokens.

    At most one is claimed to be compared completely.
    """
    config = context.config
    rows = await context.database.call(
        sql.claim_comparisons,
        cause=reason,
        most=most,
        lease=config.portal_lease,
        every=config.comparison,
        settle=config.portal_settle,
        changing=comparison_rules.CHANGING,
        furthest=FURTHEST,
    )
    return [(row["company_id"], row["fence"]) for row in rows]


async def compare_claimed(
    contexts: Mapping[str, SubmissionContext], reason: str, company_id: int, fence: int
) -> bool:
    """Compare a claimed company. Return whether another one can be compared at once.

    `contexts` has a context for each reason.
    """
    is_complete, context = reason != UNKNOWN, contexts[reason]
    try:
        async with hold_claim(context, company_id, fence, is_complete) as own_claim:
            if not is_complete:
                await _look_up(context, own_claim)
                return True
            async with running(_look_up_meanwhile(contexts[UNKNOWN], own_claim)):
                await compare(_make_patient(context), company_id, own_claim=own_claim)
    except (ComparisonStopped, PortalError) as why:
        log.info("comparison company=%d: %s", company_id, why)
        return not isinstance(why, NotSent)  # the portal cannot be reached for others either
    return True


async def _look_up_meanwhile(context: SubmissionContext, own_claim: ComparisonClaim) -> None:
    """Look up unknown outcomes while a complete comparison is running, which can take hours."""
    while True:
        await asyncio.sleep(LOOK_UP_SECONDS)
        try:
            await _look_up(context, own_claim)
        except (ComparisonStopped, PortalError) as why:
            log.info("comparison company=%d: %s", own_claim.company_id, why)
        except Exception as error:
            log.error("look-up company=%d: %s", own_claim.company_id, describe_or_trace(error))


async def _look_up(context: SubmissionContext, own_claim: ComparisonClaim) -> None:
    """Compare a company over the time since its first send with an unknown outcome.

    The time is at most FURTHEST, because the portal refuses longer listings. Raises PortalError.
    """
    context, company_id = await sign_in(context, own_claim.company_id), own_claim.company_id
    rows = await context.database.read(sql.comparison_unknown, company_id=company_id)
    for row in rows:
        since = max(row["first_sent_at"], row["now"] - FURTHEST)
        span = _Span(company_id, row["tin"], since, row["now"], False, False)
        await _compare(context, span, own_claim)


async def compare(
    context: SubmissionContext,
    company_id: int,
    days: int | None = None,
    own_claim: ComparisonClaim | None = None,
) -> JsonObject:
    """Compare a company completely, store the findings and take over later states.

    Return {company_id, days, listed, adopted, stopped, found, resolved, held, findings}: the time
    that was compared, rounded up, counts, whether sending is held, and the open findings. A company
    is compared over all that may have changed since the latest complete comparison, and at least
    over `days`; while its sending is held, over FURTHEST, or since the time until which everything
    sent is recorded. A TIN that is not verified is not listed, and the hold of a company without a
    verified TIN does not end. Without a claim, no unknown outcome is decided. Raises PortalError.
    """
    context = await sign_in(context, company_id)
    async with context.database.reading(company_id) as conn:
        basis: BasisRow = await sql.comparison_basis(conn, furthest=FURTHEST)
        since = comparison_rules.first_moment(basis, days)
        rows = await sql.comparison_tins(conn, since=since)
        sent: set[str] = {row["tin"] for row in rows}
    is_held, now = basis["held_since"] is not None, basis["now"]
    counts: dict[str, int] = dict.fromkeys(("listed", "adopted", "stopped", "found", "resolved"), 0)
    own_tin = basis["own_tin"]
    for tin in sent | {own_tin} if own_tin else sent:
        span = _Span(company_id, tin, since, now, is_held, is_complete=True)
        for name, n in (await _compare(context, span, own_claim)).items():
            counts[name] += n
    async with context.database.company(company_id) as conn:
        await sql.comparison_done(conn, compared_at=now, listed=counts["listed"])
        released: object = own_tin and await sql.hold_release(
            conn, settle=context.config.portal_settle
        )
        findings = [dict(row) for row in await sql.findings_open(conn)]
    return {
        "company_id": company_id,
        "days": math.ceil((now - since) / timedelta(days=1)),
        **counts,
        "held": is_held and not released,
        "findings": findings,
    }


async def _compare(
    context: CompanyContext, span: _Span, own_claim: ComparisonClaim | None
) -> dict[str, int]:
    """Compare one TIN, decide about unknown outcomes, store the findings and return their counts.

    Raises PortalError, also if the clocks differ while sending is held: the settling time cannot be
    measured then. Otherwise no absence is confirmed while they differ.
    """
    unknown = own_claim and UnknownOutcomes(
        context, own_claim, span.tin, span.listed_from, span.until
    )
    try:
        if unknown and not await _needs_listing(span, unknown):
            return {}
        listing = await _read_listing(context, span, unknown)
        is_measured = span.is_held or (unknown and await unknown.read_left())
        apart = await context.compare_clocks(context.portal, span.tin) if is_measured else None
    except PortalError as error:
        if unknown:
            await unknown.conclude(describe_failure(error))
        raise
    if unknown:
        await unknown.conclude(ListingEnded(span.until, complete=not apart), listing)
    if span.is_held and apart:
        raise NotSent(apart["message"])
    return await _judge(context, span, listing)


async def _needs_listing(span: _Span, unknown: UnknownOutcomes) -> bool:
    """Decide what needs no listing. Return whether the comparison needs one."""
    left = await unknown.decide_before_listing()
    if span.is_complete or any(map(unknown.needs_listing, left)):
        return True
    if left:
        await unknown.conclude(ListingEnded(span.until, complete=False))
    return False


async def _read_listing(
    context: CompanyContext, span: _Span, unknown: UnknownOutcomes | None
) -> Listing:
    """Return the portal's listing. Raises PortalError and ComparisonStopped."""
    until, further = span.until + CLOCK_TOLERANCE, bool(unknown and unknown.searched)
    check = unknown.claim.check if unknown else None
    listing = await context.portal.search(
        span.tin, span.listed_from, until, further=further, check=check
    )
    await record_odd_rows(context, span.company_id, span.tin, "search", listing)
    return listing


async def _judge(context: CompanyContext, span: _Span, listing: Listing) -> dict[str, int]:
    """Compare a complete listing with the submitted documents, store the result, return counts."""
    company_id, tin = span.company_id, span.tin
    settled_at = span.until - context.config.portal_settle
    async with context.database.reading(company_id) as conn:
        attempts = await _load_attempts(conn, listing)
        recorded, attempted = await _find_elsewhere(conn, span, listing)
        expected: list[ExpectedRow] = await sql.comparison_expected(
            conn,
            tin=tin,
            since=span.since,
            until=settled_at,
            is_own=context.portal.login_for(tin).is_own,
        )
    verdict = comparison_rules.judge_listing(
        tin, listing, attempts, recorded | attempted, None if span.is_held else settled_at
    )
    verdict.findings += comparison_rules.find_valid_there(tin, listing, attempts, settled_at)
    verdict.findings += comparison_rules.find_missing(listing, expected, listing.odd)
    verdict.findings += comparison_rules.find_shared(listing, attempts, recorded)
    if span.is_held:  # an unreadable row may be a document whose rows were lost
        verdict.findings += comparison_rules.find_unreadable(tin, listing.odd, attempts)
    await follow_listing(context, company_id, listing, attempts)
    return {"listed": len(listing), **await _store(context, span, verdict, listing)}


async def _load_attempts(conn: Connection, listing: Listing) -> list[Attempt]:
    """Return the submitted documents that may be listed, oldest first, read in blocks."""
    uuids = [*(one.uuid for one in listing), *(row.key for row in listing.odd)]
    numbers = [one.number for one in listing]
    rows: dict[int, Attempt] = {}
    for start in range(0, len(uuids), BLOCK):
        block = slice(start, start + BLOCK)
        found = await sql.comparison_attempts(conn, uuids=uuids[block], numbers=numbers[block])
        rows |= {row["id"]: Attempt(**row) for row in found}
    return [rows[submitted_document_id] for submitted_document_id in sorted(rows)]


async def _find_elsewhere(
    conn: Connection, span: _Span, listing: Sequence[Document]
) -> tuple[set[str], set[str]]:
    """Return the listed uuids that other companies have recorded, and may have sent."""
    rows = await sql.uuids_elsewhere(
        conn,
        company=span.company_id,
        own_tin=span.tin,
        uuids=[listed.uuid for listed in listing],
        numbers=[listed.number for listed in listing],
        types=[listed.type_code for listed in listing],
        issue_times=[listed.issued_at for listed in listing],
    )
    recorded = {row["uuid"] for row in rows if row["is_recorded"]}
    return recorded, {row["uuid"] for row in rows if not row["is_recorded"]}


async def _store(
    context: SubmissionContext, span: _Span, verdict: Verdict, listing: Sequence[Document]
) -> dict[str, int]:
    """Store a verdict in one transaction and return its counts."""
    company_id = span.company_id
    async with context.database.company(company_id) as conn:
        shown = [
            (submission_id, listed.uuid, listed.number, listed.submission_uid, "listed")
            for submission_id, listed in [*verdict.adopt.items(), *verdict.sightings]
        ]
        # For manual review. The identity is checked when a document is adopted.
        await store.insert_sightings(conn, shown)
        adopted = stopped = 0
        for submission_id, listed in verdict.adopt.items():
            received_at = listed.received_at or span.until
            adopted += await _move(conn, submission_id, ADOPTED, received_at)
        for submission_id, listed in verdict.stop.items():
            error = {**STOPPED, "message": STOPPED["message"].format(listed.uuid)}
            stopped += await _move(conn, submission_id, error)
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
        if await sql.finding_insert(conn, tin=span.tin, **asdict(one))
    ]
    cleared = await sql.findings_clear(
        conn,
        tin=span.tin,
        since=span.since,
        until=span.until + CLOCK_TOLERANCE,
        still=[one.key for one in findings],
        listed=[listed.uuid for listed in listing],
        after=CANCELLATIONS_SHOWN,
    )
    return new, len(cleared)


async def _move(
    conn: Connection,
    submission_id: int,
    error: JsonObject,
    received_at: datetime | None = None,
) -> bool:
    """Take a Queued submission out of the queue. Return whether it was there.

    With the time of its receipt it becomes Uncertain: the next comparison adopts its document.
    """
    moved = await sql.comparison_move(
        conn,
        id=submission_id,
        state="Uncertain" if received_at else "NeedsPerson",
        received_at=received_at,
        last_error=json_codec.dumps(error),
    )
    return bool(moved)


def _make_patient(context: SubmissionContext) -> SubmissionContext:
    """Return a context for complete comparisons, which request failed pages of listings again."""
    portal = context.shared_portal.with_retries(partial(_retry_page, context))
    return replace(context, shared_portal=portal)


async def _retry_page(context: SubmissionContext, error: PortalError, failures: int) -> bool:
    """Wait until a page that failed can be requested again, and return whether to do it.

    The claim and the pages before are kept. For a token of the operator's client, or the end of
    its pause, it waits as long as necessary, because no other company could be compared
    meanwhile.
    """
    if isinstance(error, Throttled):
        wait = error.retry_after
        if error.own_client_id is not None and (
            failures > MOST_FAILURES or wait > OWN_CLIENT_PATIENCE
        ):
            return False
    elif failures < MOST_FAILURES and isinstance(error, NotSent | Unclear):
        wait = context.config.portal_retry * failures
    else:
        return False
    await asyncio.sleep(wait.total_seconds())
    return True
