"""Background worker: claims due submissions and cancellations of all companies."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Iterator, Mapping

from service.db.connections import TRANSIENT_DB_ERRORS, describe_or_trace
from service.db.statements import sql
from service.documents.states import SubmissionState
from service.loops import Loop
from service.monitoring.gauges import Sample
from service.submission.context import Claim, SubmissionContext
from service.submission.following import cancel, comparison, poll
from service.submission.following.comparison import HELD, REGULAR, UNKNOWN
from service.submission.following.unknown_outcomes import mark_uncertain
from service.submission.runner import Flow, run_claimed
from service.submission.sending import send

log = logging.getLogger(__name__)

#: Kinds of work that must not wait for each other.
#: Name -> (maximum number at a time in one process, states of the submissions)
QUEUES: dict[str, tuple[int, tuple[SubmissionState, ...]]] = {
    "sends": (4, ("Queued",)),
    "lookups": (4, ("Sending", "Uncertain")),
    "polls": (8, ("Accepted",)),
    "cancellations": (4, ()),
    "holds": (1, ()),
    "comparisons": (1, ()),
}
#: Queues of comparisons -> their reason.
COMPARISONS = {"lookups": UNKNOWN, "holds": HELD, "comparisons": REGULAR}
LONGEST_CHECK = 15.0  # seconds between two checks for a company to compare completely
ERROR_PAUSE = 0.5  # seconds after a round that failed
LONGEST_SLEEP = 5.0  # seconds; notifications can be lost
SHORTEST_SLEEP = 0.02  # seconds; due work may be claimed by another process
SUSPECT_SLEEP = 0.5  # seconds, while a suspect is handled: due suspects wait for it
#: Suspects are submissions whose earlier handling gave no result, as after a crash. A process
#: handles only this many at a time, so that the next crash counts against these alone.
MOST_SUSPECTS = 1
STOP_SECONDS = 25  # limit for running work at a shutdown

#: State of a claimed submission -> its flow. Uncertain ones are claimed by their company.
FLOWS: dict[SubmissionState, Flow] = {
    "Queued": send.send,
    "Sending": mark_uncertain,
    "Accepted": poll.poll,
}
#: State -> the portal operation that its flow needs.
NEEDS: dict[SubmissionState, str] = {
    "Queued": "submit",
    "Uncertain": "search",
    "Accepted": "submission",
}


class Worker(Loop):
    """Claims and handles work until it is stopped.

    An error is logged, and its work is claimed again when the lease expires.
    """

    def __init__(self, contexts: Mapping[str, SubmissionContext]) -> None:
        context = contexts[UNKNOWN]
        super().__init__("worker", ERROR_PAUSE, TRANSIENT_DB_ERRORS, context.due)
        self._context = context
        self._contexts = contexts  # by reason of a comparison
        # Queue of complete comparisons -> monotonic time of the next check
        self._check_at = {"holds": 0.0, "comparisons": 0.0}
        self._busy: dict[str, set[asyncio.Task[None]]] = {queue: set() for queue in QUEUES}
        self._suspects: set[asyncio.Task[None]] = set()

    async def work(self) -> float:
        """Start due work, and return the seconds until more is due, without notifications."""
        await self._claim()
        return await self._seconds_until_due()

    def read_gauges(self) -> Iterator[Sample]:
        """Yield the work under way by queue."""
        for queue, tasks in self._busy.items():
            yield "einvoice_worker_tasks", (queue,), len(tasks)

    async def stop(self) -> None:
        """Stop claiming and wait for running work, but not for complete comparisons.

        They may wait long for the portal's rate limit, and another process begins them again.
        """
        self._context.stopping.set()
        await super().stop()
        for task in [task for queue in self._check_at for task in self._busy[queue]]:
            task.cancel()
        await self._context.finish(STOP_SECONDS)

    async def _claim(self) -> None:
        """Start due work within the capacity of each queue."""
        for queue in QUEUES:
            most, states = self._capacity(queue)
            if most > 0 and states:
                await self._claim_submissions(queue, most, states)
        most, _ = self._capacity("cancellations")
        if most > 0:
            await self._claim_cancellations(most)
        for queue, reason in COMPARISONS.items():
            await self._claim_comparisons(queue, reason)

    def _capacity(self, queue: str) -> tuple[int, list[SubmissionState]]:
        """Return the free places of a queue and the states whose portal operation is not held."""
        most, states = QUEUES[queue]
        left = most - len(self._busy[queue])
        if "Queued" in states and self._context.is_scarce("submit"):
            # Submissions that are claimed together would compete for a token out of turn.
            left = min(left, 1)
        return left, [state for state in states if not self._context.is_held(NEEDS.get(state))]

    async def _claim_submissions(
        self, queue: str, most: int, states: list[SubmissionState]
    ) -> None:
        rows = await self._context.database.call(
            sql.claim_submissions,
            lease=self._context.config.portal_lease,
            most=most,
            states=states,
            suspects=MOST_SUSPECTS - len(self._suspects),
        )
        for row in rows:
            claim = Claim(row["company_id"], row["id"], row["fence"])
            name = f"submission {claim} state={row['state']}"
            task = self._start(queue, name, run_claimed(self._context, claim, FLOWS[row["state"]]))
            if row["claims"] > 1:
                self._suspects.add(task)
                task.add_done_callback(self._suspects.discard)

    async def _claim_comparisons(self, queue: str, reason: str) -> None:
        """Claim companies to be compared for a reason."""
        most, states = self._capacity(queue)
        is_held = reason == UNKNOWN and "Uncertain" not in states
        if most <= 0 or is_held or self._check_at.get(queue, 0.0) > time.monotonic():
            return
        pause = self._context.config.comparison.total_seconds() / 4
        self._check_after(queue, min(LONGEST_CHECK, pause))
        for company_id, fence in await comparison.claim(self._context, reason, most):
            work = self._compare(queue, company_id, fence)
            self._start(queue, f"comparison company={company_id}", work)

    async def _compare(self, queue: str, company_id: int, fence: int) -> None:
        """Compare a company. The next one follows at once if the portal answers."""
        reason = COMPARISONS[queue]
        if await comparison.compare_claimed(self._contexts, reason, company_id, fence):
            self._check_after(queue, 0.0)

    def _check_after(self, queue: str, seconds: float) -> None:
        """Set when to look for the next complete comparison."""
        if queue in self._check_at:
            self._check_at[queue] = time.monotonic() + seconds

    async def _claim_cancellations(self, most: int) -> None:
        rows = await self._context.database.call(
            sql.claim_cancellations, lease=self._context.config.portal_lease, most=most
        )
        for row in rows:
            claim = Claim(row["company_id"], row["id"], row["cancel_fence"])
            work = cancel.run(self._context, claim)
            self._start("cancellations", f"cancellation {claim}", work)

    def _start(self, queue: str, name: str, work: Awaitable[object]) -> asyncio.Task[None]:
        task = self._context.spawn(self._guard(name, work))
        self._busy[queue].add(task)
        task.add_done_callback(self._busy[queue].discard)
        return task

    async def _guard(self, name: str, work: Awaitable[object]) -> None:
        """Log the error of a piece of work, and look for more work after it."""
        try:
            await work
        except Exception as error:
            log.error("worker: %s\n%s", name, describe_or_trace(error))
        finally:
            self._context.due.set()

    async def _seconds_until_due(self) -> float:
        """Return the seconds until more work is due or a pause of the portal ends."""
        checks = [at for queue, at in self._check_at.items() if self._capacity(queue)[0] > 0]
        check_at = min(checks, default=math.inf)
        seconds = min(LONGEST_SLEEP, self._context.held_for(NEEDS.values()))
        seconds = min(seconds, max(0.0, check_at - time.monotonic()))
        capacities = [self._capacity(queue) for queue in QUEUES]
        states = [state for most, states in capacities if most > 0 for state in states]
        due = await self._context.database.call(sql.next_due, states=states)
        shortest = SUSPECT_SLEEP if self._suspects else SHORTEST_SLEEP
        return seconds if due is None else min(seconds, max(shortest, due.total_seconds()))
