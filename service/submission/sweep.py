"""The orphan sweep: all that the portal lists of a company is held against our attempts, and the other way round.

It sees what no caution prevents: rows that a restore took back, a failover that lost the last commits, a document that
the portal took long after it seemed never received. While a company's sending is held, a sweep that finds nothing
unaccounted for is what ends the hold.
"""

import asyncio
import logging
from dataclasses import asdict
from datetime import timedelta

import asyncpg

from service import json_codec
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS
from service.errors import describe_error, format_traceback
from service.portal.errors import PortalError
from service.portal.responses import Document, Listing
from service.submission import sweep_rules
from service.submission.odd_rows import record_odd_rows
from service.submission.sweep_rules import Row

log = logging.getLogger(__name__)

CLOCKS_APART = timedelta(minutes=5)  # between the portal and us
MOST_DAYS = 31  # and what a sweep that ends a hold covers
LONGEST_LISTING = timedelta(days=30)  # the portal lists 31 days at most. Portal: 5.5
BLOCK = 2000  # listed documents that are looked up at a time
# How long a cancellation by somebody else stays open at least
CANCELLATIONS_SHOWN = timedelta(days=1)
LONGEST_SLEEP = 15.0  # seconds until the next look for a company that is due

ADOPTED = {
    "code": "SweepAdopted",
    "path": "",
    "message": "The portal has it, though it seemed not sent.",
}
STOPPED = {
    "code": "NumberAtPortal",
    "path": "",
    "message": "The portal has another document of this number, {}, which no submission of ours accounts for.",
}


async def sweep(context, company, days=1):
    """Compares a company with the portal over some days, and writes down what it finds. Raises PortalError.

    Returns {company_id, days, listed, adopted, stopped, found, resolved, held, findings}: counts, whether sending is
    held, and the open findings. A company that is held is compared over 31 days. A TIN that is not verified is not
    listed, and the hold of a company without a verified TIN does not end.
    """
    span = timedelta(days=days)
    async with context.database.reading(company) as conn:
        ground = await sql.sweep_ground(
            conn, company_id=company, span=span, most=timedelta(days=MOST_DAYS)
        )
    if ground["held_since"]:
        days, span = MOST_DAYS, timedelta(days=MOST_DAYS)
    counts = dict.fromkeys(("listed", "adopted", "stopped", "found", "resolved"), 0)
    verified = [ground["own_tin"]] if ground["own_tin"] else []
    for tin in {*verified, *ground["tins"]}:
        for name, n in (await _compare(context, company, tin, ground, span)).items():
            counts[name] += n
    async with context.database.company(company) as conn:
        await sql.sweep_done(
            conn,
            company_id=company,
            swept_at=ground["now"],
            listed=counts["listed"],
            found=counts["found"],
        )
        released = verified and await sql.hold_release(
            conn, company_id=company, settle=context.config.portal_settle
        )
        open_ones = [dict(row) for row in await sql.findings_open(conn, company_id=company)]
    held = ground["held_since"] is not None and not released
    return {"company_id": company, "days": days, **counts, "held": held, "findings": open_ones}


async def _compare(context, company, tin, ground, span):
    """Counts of what one TIN's listing led to."""
    since, now = ground["now"] - span, ground["now"]
    listing = await _listing(context, tin, since - CLOCKS_APART, now + CLOCKS_APART)
    await record_odd_rows(context, company, tin, "search", listing, listing.odd)
    settled_at = None if ground["held_since"] else now - context.config.portal_settle
    async with context.database.reading(company) as conn:
        attempts = await _attempts(conn, company, listing)
        elsewhere = await _elsewhere(conn, company, tin, listing, attempts)
        shared = await _shared(conn, company, listing, attempts)
        expected = await sql.sweep_expected(
            conn, company_id=company, tin=tin, since=since, until=now - context.config.portal_settle
        )
    verdict = sweep_rules.judged(tin, listing, attempts, elsewhere, settled_at)
    verdict.findings += sweep_rules.missing(tin, listing, expected, listing.odd)
    verdict.findings += sweep_rules.shared(tin, listing, attempts, shared)
    if ground["held_since"]:  # what cannot be read may be what the rows have lost
        verdict.findings += sweep_rules.unreadable(tin, listing.odd, attempts)
    return {
        "listed": len(listing),
        **await _written(context, company, tin, verdict, [one.uuid for one in listing], since, now),
    }


async def _attempts(conn, company, listing):
    """Every attempt that one of the listed documents may be, oldest first; looked up a block at a time."""
    rows = {}
    for start in range(0, len(listing), BLOCK):
        block = listing[start : start + BLOCK]
        facts = {"uuids": [one.uuid for one in block], "numbers": [one.number for one in block]}
        rows |= {
            row["id"]: row for row in await sql.sweep_attempts(conn, company_id=company, **facts)
        }
    if keys := [row.key for row in listing.odd]:
        rows |= {
            row["id"]: row
            for row in await sql.sweep_attempts(conn, company_id=company, uuids=keys, numbers=[])
        }
    return [rows[id] for id in sorted(rows)]


async def _elsewhere(
    conn: asyncpg.Connection, company: int, tin: str, listing: list[Document], attempts: list[Row]
) -> set[str]:
    """Return the uuids of listed documents that other companies have, or may have sent without knowing the outcome yet."""
    own = {row["uuid"] for row in attempts}
    unknown = [there for there in listing if there.uuid not in own]
    if not unknown:
        return set()
    uuids = [there.uuid for there in unknown]
    found = {
        row["uuid"] for row in await sql.sweep_elsewhere(conn, company_id=company, uuids=uuids)
    }
    if await sql.tin_is_shared(conn, company_id=company, tin=tin):
        facts = {
            "uuids": uuids,
            "numbers": [there.number for there in unknown],
            "types": [there.type_code for there in unknown],
            "issue_times": [there.issued_at for there in unknown],
        }
        rows = await sql.sweep_attempted_elsewhere(conn, company_id=company, tin=tin, **facts)
        found |= {row["uuid"] for row in rows}
    return found


async def _shared(
    conn: asyncpg.Connection, company: int, listing: list[Document], attempts: list[Row]
) -> set[str]:
    """Return those of our own listed uuids that other companies have recorded as theirs."""
    own = list({there.uuid for there in listing} & {row["uuid"] for row in attempts})
    rows = await sql.sweep_shared(conn, company_id=company, uuids=own) if own else []
    return {row["uuid"] for row in rows}


async def _listing(context, tin, since, until):
    """All documents of a time, each once, however many listings it takes."""
    rows, odd = {}, {}
    while since < until:
        to = min(until, since + LONGEST_LISTING)
        found = await context.portal.search(tin, since, to, further=bool(rows))
        rows.update((there.uuid, there) for there in found)
        odd.update((row.key, row) for row in found.odd)
        since = to
    return Listing(rows.values(), odd.values())


async def _written(context, company, tin, verdict, listed, since, now):
    """Writes a Verdict down in one transaction; what became of each."""
    async with context.database.company(company) as conn:
        adopted = [
            id for id, there in verdict.adopt.items() if await _adopt(conn, company, id, there, now)
        ]
        stopped = [
            id for id, there in verdict.stop.items() if await _stop(conn, company, id, there)
        ]
        for id, there in verdict.evidence:
            await _evidence(conn, company, id, there)
        # As findings_insert_cancelled
        ordered = sorted(verdict.findings, key=lambda finding: finding.key)
        new = [
            one
            for one in ordered
            if await sql.finding_insert(conn, company_id=company, **asdict(one))
        ]
        still = [one.key for one in verdict.findings]
        cleared = await sql.findings_clear(
            conn,
            company_id=company,
            tin=tin,
            since=since,
            until=now + CLOCKS_APART,
            still=still,
            listed=listed,
        )
        cleared += await sql.findings_expire(conn, company_id=company, after=CANCELLATIONS_SHOWN)
    for one in new:
        facts = (one.kind, one.number, one.uuid, one.other_uuid)
        log.warning("sweep company=%d kind=%s number=%s uuid=%s other=%s", company, *facts)
    if adopted:
        context.due.set()
    return {
        "adopted": len(adopted),
        "stopped": len(stopped),
        "found": len(new),
        "resolved": len(cleared),
    }


async def _adopt(conn, company, id, there, now):
    """A Queued submission becomes Uncertain: it will be found at the portal once more, and taken over."""
    await _evidence(conn, company, id, there)
    at = there.received_at or now
    return await sql.sweep_adopt(
        conn, company_id=company, id=id, received_at=at, last_error=json_codec.dumps(ADOPTED)
    )


async def _stop(conn, company, id, there):
    error = {**STOPPED, "message": STOPPED["message"].format(there.uuid)}
    return await sql.sweep_stop(conn, company_id=company, id=id, last_error=json_codec.dumps(error))


async def _evidence(conn, company, id, there):
    """Record a listed document for people. Whether it is the one that was sent is proven when it is adopted."""
    await sql.sighting_insert(
        conn,
        company_id=company,
        submission_id=id,
        numbers=[there.number],
        uuids=[there.uuid],
        submission_uid=there.submission_uid,
        via="listed",
    )


async def record_database_identity(database):
    """Holds sending back where this is another database than before, whose rows may be older than what was sent."""
    async with database.across() as conn:
        if await sql.database_note(conn):
            log.warning(
                "This is another database than before: nothing is sent until each company was compared."
            )


class Sweeper:
    """Sweeps company after company as they fall due. Who does is agreed in PostgreSQL: any number of processes may."""

    def __init__(self, context):
        self._context = context
        self.woken = asyncio.Event()  # set when PostgreSQL was away, and may be another now

    async def run(self):
        """Ends when cancelled; a sweep that is cut short is done again by whoever claims it next."""
        while True:
            self.woken.clear()
            try:
                await record_database_identity(self._context.database)
                if await self._next():
                    continue
            except TRANSIENT_DB_ERRORS as fault:
                log.warning("sweep: %s", describe_error(fault))
            except Exception as error:
                log.error("sweep: it broke off\n%s", format_traceback(error))
            await self._sleep()

    async def _sleep(self):
        try:
            async with asyncio.timeout(
                min(LONGEST_SLEEP, self._context.config.sweep.total_seconds() / 4)
            ):
                await self.woken.wait()
        except TimeoutError:
            pass

    async def _next(self):
        """True when a company was due. One that could not be swept is tried again when its claim has run out."""
        config = self._context.config
        if self._context.is_held("search"):
            return False
        async with self._context.database.across() as conn:
            row = await sql.sweep_claim(
                conn, lease=config.portal_lease * 5, every=config.sweep, settle=config.portal_settle
            )
        if row is None:
            return False
        try:
            await sweep(self._context, row["company_id"])
        except PortalError as why:
            log.info("sweep company=%d: %s", row["company_id"], why)
            await self._context.apply_throttle(why, "search")
        return True
