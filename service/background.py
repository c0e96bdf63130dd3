"""The work behind the requests: claims what is due, whatever company it is of, and hands it to its flow."""

import asyncio
import logging

from service.db import PASSING
from service.statements import sql
from service.submission import cancel, poll, reconcile, send
from service.submission.desk import Claim

log = logging.getLogger(__name__)

AT_ONCE = 8  # submissions that one process works on
LONGEST_SLEEP = 5.0  # seconds; news of work can be missed
SHORTEST_SLEEP = 0.02  # what is due at once may be in somebody else's hands
MOST_CLAIMS = 5  # without a result: what then still ends no claim may be what ends the process, and goes to a person
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
        self._idle = asyncio.Event()  # set once it claims no more

    async def run(self):
        try:
            await self._run()
        finally:
            self._idle.set()

    async def _run(self):
        while not self._stopping:
            self._desk.due.clear()
            try:
                await self._claim()
                await self._sleep()
            except PASSING as fault:
                log.warning("worker: %s", fault)
                await asyncio.sleep(0.5)

    async def stop(self):
        """Claims no more, and lets what is under way finish."""
        self._stopping = True
        self._desk.due.set()
        await self._idle.wait()
        await self._desk.finish(STOP_SECONDS)

    async def _claim(self):
        """Starts what is due, as much as there is room for."""
        room = AT_ONCE - len(self._desk.tasks)
        if room <= 0:
            return
        lease = self._desk.config.portal_lease
        async with self._desk.database.across() as conn:
            rows = await sql.submission_claim(conn, lease=lease, most=room)
            stuck = await sql.cancellation_claim(conn, lease=lease, most=room)
        for row in rows:
            flow = FLOWS[row["state"]] if row["claims"] <= MOST_CLAIMS else send.give_up
            self._desk.spawn(self._work(flow, Claim(row["company_id"], row["id"], row["fence"])))
        for row in stuck:
            cancellation = cancel.Cancellation(row["company_id"], row["id"], row["cancel_fence"])
            self._desk.spawn(self._work(cancel.resume, cancellation))

    async def _work(self, flow, claim):
        try:
            await flow(self._desk, claim)
        except Exception:
            log.exception("worker: %s of company %d, id %d", flow.__name__, claim.company_id, claim.id)
        finally:
            self._desk.due.set()

    async def _sleep(self):
        """Until news, or until the next work falls due that there is room for."""
        seconds = LONGEST_SLEEP
        if len(self._desk.tasks) < AT_ONCE:
            async with self._desk.database.across() as conn:
                due = await sql.submission_next_due(conn)
            seconds = seconds if due is None else min(seconds, max(SHORTEST_SLEEP, due.total_seconds()))
        try:
            async with asyncio.timeout(seconds):
                await self._desk.due.wait()
        except TimeoutError:
            pass
