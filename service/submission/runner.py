"""Runs the state machine: carries out its commands and feeds the results back as events."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from service.db.transient_errors import is_interruption
from service.errors import describe_error, format_traceback
from service.portal.errors import Held, LoginRefused, PortalError, Throttled
from service.submission import state_machine, store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.types import (
    NO_DELAY,
    Command,
    Error,
    Event,
    RecordSightings,
    ReleaseClaim,
    Submission,
    Times,
    Write,
)

log = logging.getLogger(__name__)

#: Carries out one command for the submission as it was before it. Returns the next event, or None
#: to stop.
CommandHandler = Callable[[CompanyContext, Claim, Submission, Any], Awaitable[Event | None]]
Handlers = Mapping[type, CommandHandler]

# After this time, work checks again whether the credentials were changed.
LONGEST_LOGIN_WAIT = timedelta(minutes=5)
# Transactions of one batch at a time. Background work has one connection more than this.
WRITERS = 3


def retry_delay(why: PortalError) -> timedelta | None:
    """Return the pause before a failed request is repeated, or None if the error has none."""
    if isinstance(why, LoginRefused):
        if why.retry_after is None:
            return LONGEST_LOGIN_WAIT
        return min(why.retry_after, LONGEST_LOGIN_WAIT)
    return why.retry_after if isinstance(why, Throttled) else None


def hold_time(why: PortalError, operation: str) -> timedelta | None:
    """Return for how long the claim is released if our own rate limiter held a request, else None.

    A submission held by the flow's own operation is due at once: workers claim no such work until
    the operation is free, and then in the order of the queue. Any other hold is waited out.
    """
    if not isinstance(why, Held):
        return None
    return NO_DELAY if why.operation == operation else why.retry_after


def make_error(why: PortalError, code: str | None = None) -> Error:
    """Return a failed request as an error of the submission, by default with its class as code."""
    return {"code": code or type(why).__name__, "path": "", "message": str(why)}


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a run, with the submission as it was before it."""

    run: "SubmissionRun"
    before: Submission
    command: Command


@dataclass(slots=True)
class SubmissionRun:
    """A claimed submission in its state after all commands so far."""

    claim: Claim
    submission: Submission
    is_open: bool = True  # no result was written, and the claim was not released
    has_failed: bool = False  # by an error of its own: its claim expires and stays counted

    def step(self, event: Event, times: Times) -> list[Step]:
        """Apply an event and return the steps that follow."""
        before = self.submission
        self.submission, commands = state_machine.step(before, event, times)
        if any(isinstance(command, (Write, ReleaseClaim)) for command in commands):
            self.is_open = False
        return [Step(self, before, command) for command in commands]


async def run(
    context: CompanyContext,
    claim: Claim,
    event: Event | None,
    handlers: Handlers | None = None,
) -> Event | None:
    """Process events until no command produces another one or the claim is lost.

    `handlers` carry out the commands that produce events. Return the last event.
    """
    submission = await store.load(context, claim)
    if submission is None:
        return None
    current, last = SubmissionRun(claim, submission), None
    while event is not None:
        last, event = event, None
        for step in current.step(last, context.config):
            if not await _write(context, step):
                handle = (handlers or {})[type(step.command)]
                event = await handle(context, claim, step.before, step.command)
    return last


async def _write(context: SubmissionContext, step: Step) -> bool:
    """Carry out a command that is only written. Return False for another one."""
    claim, command = step.run.claim, step.command
    if isinstance(command, RecordSightings):
        await store.record_sightings(context, claim.company_id, [(claim, step.before, command)])
    elif isinstance(command, Write):
        await store.write(context, claim, step.before, command)
    elif isinstance(command, ReleaseClaim):
        await store.release(context, claim.company_id, [(claim, command.wait)])
    else:
        return False
    return True


async def run_batch(context: SubmissionContext, company_id: int, steps: list[Step]) -> None:
    """Carry out the steps of several runs of one company: all sightings first, then all results.

    Results that change no document are written in one statement, the others in one transaction
    each. An error of one run leaves that claim to expire, and the others continue.
    """
    sightings = [
        (step.run.claim, step.before, step.command)
        for step in steps
        if isinstance(step.command, RecordSightings)
    ]
    if sightings:
        await store.record_sightings(context, company_id, sightings)
    results = [
        (step.run.claim, step.before, step.command)
        for step in steps
        if isinstance(step.command, Write) and store.is_plain(step.command)
    ]
    if results:
        await store.write_batch(context, company_id, results)
    await _write_each(context, _select_unplain(steps))
    released = [
        (step.run.claim, step.command.wait)
        for step in steps
        if isinstance(step.command, ReleaseClaim)
    ]
    if released:
        await store.release(context, company_id, released)


def _select_unplain(steps: list[Step]) -> Iterator[tuple[Step, Write]]:
    for step in steps:
        if isinstance(step.command, Write) and not store.is_plain(step.command):
            yield step, step.command


async def _write_each(context: SubmissionContext, writes: Iterator[tuple[Step, Write]]) -> None:
    """Carry out Writes in WRITERS transactions at a time."""

    async def write() -> None:
        for step, command in writes:
            try:
                await store.write(context, step.run.claim, step.before, command)
            except Exception as error:
                # An interrupted claim is released; any other error is the submission's own.
                step.run.is_open = is_interruption(error)
                step.run.has_failed = not step.run.is_open
                what = describe_error(error) if step.run.is_open else format_traceback(error)
                log.error("submission %s: %s", step.run.claim, what)

    await asyncio.gather(*[write() for _ in range(WRITERS)])
