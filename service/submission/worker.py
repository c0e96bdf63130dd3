"""The work behind the requests: claims what is due, whatever company it is of, and hands it to its flow."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, is_interruption
from service.errors import describe_error, format_traceback
from service.submission import cancel, poll, reconcile, send, store
from service.submission.context import Claim

log = logging.getLogger(__name__)

#: What one process works on at a time: kinds of work that must not wait for each other.
#: name -> (how many at once, states of submissions that it takes up)
ROOMS = {
    "sends": (4, ("Queued",)),
    "looks": (8, ("Sending", "Uncertain", "Accepted")),
    "cancellations": (4, ()),
}
LONGEST_SLEEP = 5.0  # seconds; news of work can be missed
SHORTEST_SLEEP = 0.02  # what is due at once may be in somebody else's hands
SUSPECT_SLEEP = 0.5  # while a suspect is worked on: others may be due, and wait for it
#: Submissions whose handling began before and gave no result, of which one process handles so many
#: at a time. When the
#: process dies, the one in hand is the suspect, and not the others that were in hand at the crash
#: before.
MOST_SUSPECTS = 1
STOP_SECONDS = 25  # that what is under way may take when the process stops

#: state of a claimed submission -> its flow
FLOWS = {
    "Queued": send.send_filled,
    "Sending": reconcile.presume,
    "Uncertain": reconcile.reconcile,
    "Accepted": poll.poll,
}
#: state -> the operation of the portal without which its flow comes to nothing
NEEDS = {"Queued": "submit", "Uncertain": "search", "Accepted": "submission"}


class Worker:
    """Claims and works until it is stopped. A failure of one piece of work leaves it to its lease, and is logged."""

    def __init__(self, context):
        self._context = context
        self._busy = {room: set() for room in ROOMS}  # room -> tasks
        self._suspects = set()  # tasks of what was taken up before without a result
        self._stopping = False
        # Of its latest turn: it shows life at least every LONGEST_SLEEP
        self.beat = time.monotonic()
        self._idle = asyncio.Event()  # set once it claims no more

    async def run(self):
        try:
            await self._run()
        finally:
            self._idle.set()

    async def _run(self):
        while not self._stopping:
            self._context.due.clear()
            self.beat = time.monotonic()
            try:
                await self._claim()
                await self._sleep()
            except TRANSIENT_DB_ERRORS as fault:
                log.warning("worker: %s", describe_error(fault))
                await asyncio.sleep(0.5)

    async def stop(self):
        """Claims no more, and lets what is under way finish."""
        self._stopping = True
        self._context.stopping.set()
        self._context.due.set()
        await self._idle.wait()
        await self._context.finish(STOP_SECONDS)

    async def _claim(self):
        """Starts what is due, as much as there is room for."""
        for room in ROOMS:
            most, states = self._open(room)
            if most > 0 and states:
                await self._claim_submissions(room, most, states)
        most, _ = self._open("cancellations")
        if most > 0:
            await self._claim_cancellations(most)

    def _open(self, room):
        """(how many more pieces of work there is room for, the states whose flows would not only be held back)"""
        most, states = ROOMS[room]
        left = most - len(self._busy[room])
        if "Queued" in states and self._context.is_scarce("submit"):
            # Or those who are claimed together race for a token, whoever's turn it is
            left = min(left, 1)
        return left, [state for state in states if not self._context.is_held(NEEDS.get(state))]

    async def _claim_submissions(self, room, most, states):
        lease = self._context.config.portal_lease
        async with self._context.database.across() as conn:
            suspects = MOST_SUSPECTS - len(self._suspects)
            rows = await sql.submission_claim(
                conn, lease=lease, most=most, states=states, suspects=suspects
            )
        for row in rows:
            claim = Claim(row["company_id"], row["id"], row["fence"])
            task = self._start(
                room, f"submission {claim} state={row['state']}", self._handle(row["state"], claim)
            )
            if row["claims"] > 1:
                self._suspects.add(task)
                task.add_done_callback(self._suspects.discard)

    async def _claim_cancellations(self, most):
        async with self._context.database.across() as conn:
            stuck = await sql.cancellation_claim(
                conn, lease=self._context.config.portal_lease, most=most
            )
        for row in stuck:
            cancellation = cancel.Cancellation(row["company_id"], row["id"], row["cancel_fence"])
            self._start(
                "cancellations", str(cancellation), cancel.resume(self._context, cancellation)
            )

    def _start(
        self, room: str, subject: str, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        task = self._context.spawn(self._guard(subject, work))
        self._busy[room].add(task)
        task.add_done_callback(self._busy[room].discard)
        return task

    async def _guard(self, subject: str, work: Coroutine[Any, Any, None]) -> None:
        """Log the error of a piece of work, which is left to its lease, and look for more work after it."""
        try:
            await work
        except Exception as error:
            log.error("worker: %s\n%s", subject, format_traceback(error))
        finally:
            self._context.due.set()

    async def _handle(self, state: str, claim: Claim) -> None:
        """Handle a claimed submission. A claim that the database interrupted is given back, and is not counted."""
        try:
            await FLOWS[state](self._context, claim)
        except Exception as error:
            if not is_interruption(error):
                raise
            log.warning("worker: submission %s state=%s: %s", claim, state, describe_error(error))
            await self._return(state, claim)

    async def _return(self, state: str, claim: Claim) -> None:
        counted = state != "Uncertain"  # of those the claim was for the company: it stays due
        given = [(claim, self._context.config.portal_retry if counted else None)]
        try:
            await store.release_batch(self._context, claim.company_id, given, counted)
        except TRANSIENT_DB_ERRORS as fault:
            log.warning(
                "worker: submission %s is left to its lease: %s", claim, describe_error(fault)
            )

    async def _sleep(self):
        """Until news, or until the next work falls due that there is room for, or is no longer held back."""
        seconds = min(LONGEST_SLEEP, self._context.held_for(NEEDS.values()))
        states = [
            state
            for room in ROOMS
            for most, open in [self._open(room)]
            if most > 0
            for state in open
        ]
        async with self._context.database.across() as conn:
            due = await sql.submission_next_due(conn, states=states)
        shortest = SUSPECT_SLEEP if self._suspects else SHORTEST_SLEEP
        seconds = seconds if due is None else min(seconds, max(shortest, due.total_seconds()))
        try:
            async with asyncio.timeout(seconds):
                await self._context.due.wait()
        except TimeoutError:
            pass
