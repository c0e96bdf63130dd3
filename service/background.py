"""The work behind the requests: claims what is due, whatever company it is of, and hands it to its flow."""

import asyncio
import logging

import asyncpg

from service.statements import sql
from service.submission import cancel, poll, reconcile, send
from service.submission.desk import Claim

log = logging.getLogger(__name__)

AT_ONCE = 8  # submissions that one process works on
LONGEST_SLEEP = 5.0  # seconds; news of work can be missed
STOP_SECONDS = 25  # that what is under way may take when the process stops

#: state of a claimed submission -> its flow
FLOWS = {
    "Queued": send.send,
    "Sending": reconcile.presume,
    "Uncertain": reconcile.reconcile,
    "Accepted": poll.poll,
}


class Worker:
    """Claims and works until it is stopped. A failure of one piece of work leaves it to its lease, and is logged."""

    def __init__(self, desk):
        self._desk = desk
        self._stopping = False

    async def run(self):
        while not self._stopping:
            self._desk.due.clear()
            try:
                busy = await self._claim()
                await self._sleep(busy)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as fault:
                log.warning("worker: %s", fault)
                await asyncio.sleep(0.5)

    async def stop(self):
        """Claims no more, and lets what is under way finish."""
        self._stopping = True
        self._desk.due.set()
        await self._desk.finish(STOP_SECONDS)

    async def _claim(self):
        """Starts what is due, as much as there is room for. True when there may be more."""
        room = AT_ONCE - len(self._desk.tasks)
        if room <= 0:
            return False
        lease = self._desk.config.portal_lease
        async with self._desk.database.across() as conn:
            rows = await sql.submission_claim(conn, lease=lease, most=room)
            stuck = await sql.cancellation_claim(conn, lease=lease, most=room)
        for row in rows:
            claim = Claim(row["company_id"], row["id"], row["fence"])
            self._desk.spawn(self._work(FLOWS[row["state"]], claim))
        for row in stuck:
            cancellation = cancel.Cancellation(row["company_id"], row["id"], row["cancel_fence"])
            self._desk.spawn(self._work(cancel.resume, cancellation))
        return len(rows) == room

    async def _work(self, flow, claim):
        try:
            await flow(self._desk, claim)
        except Exception:
            log.exception("worker: %s of company %d, id %d", flow.__name__, claim.company_id, claim.id)
        finally:
            self._desk.due.set()

    async def _sleep(self, busy):
        """Until news, or the next work falls due."""
        if busy and len(self._desk.tasks) < AT_ONCE:
            return
        async with self._desk.database.across() as conn:
            due = await sql.submission_next_due(conn)
        seconds = LONGEST_SLEEP if due is None else min(LONGEST_SLEEP, max(0.02, due.total_seconds()))
        try:
            async with asyncio.timeout(seconds):
                await self._desk.due.wait()
        except TimeoutError:
            pass
