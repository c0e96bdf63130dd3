"""Drives the machine: carries out its commands in their order, and feeds what comes of them back as the next event."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from service.db.transactions import is_interruption
from service.errors import describe_error, format_traceback
from service.portal.errors import LoginRefused, PortalError, Throttled
from service.submission import state_machine, store
from service.submission.context import Claim, SubmissionContext
from service.submission.types import NOW, GiveBack, Keep, Submission, Write

log = logging.getLogger(__name__)

#: Carries out a command: (desk, claim, call, command) -> the next event, or None when there is
#: nothing more to do.
Ask = Callable[[Any, Any, Any, Any], Awaitable[Any]]

#: command -> the function that carries it out and brings no news; the caller of `drive` gives the
#: ones that ask the portal.
WRITING = {Keep: store.keep, Write: store.write, GiveBack: store.give_back}
# Work looks again by then whether the credentials were changed
LONGEST_LOGIN_WAIT = timedelta(minutes=5)
# Transactions of one batch at a time: of the background's connections one is left for everything
# else
WRITERS = 3


def retry_delay(why: PortalError) -> timedelta | None:
    """Return for how long a failed call is not repeated, or None where the failure does not say."""
    if isinstance(why, LoginRefused):
        return (
            LONGEST_LOGIN_WAIT
            if why.retry_after is None
            else min(why.retry_after, LONGEST_LOGIN_WAIT)
        )
    return why.retry_after if isinstance(why, Throttled) else None


def held(why, operation):
    """For how long a claim is given back for which a call was Held.

    What waits for the flow's own operation is due again at once: the workers take up no such work until the operation
    is free, and then whoever's turn it is. Anything else is this submission's to wait for.
    """
    return NOW if why.operation == operation else why.retry_after


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the machine, with the call as it was before it."""

    case: "SubmissionRun"
    before: Submission
    command: Any


@dataclass(slots=True)
class SubmissionRun:
    """A claimed submission, with its call as it is on disk once the commands given so far are carried out."""

    claim: Claim
    submission: Submission
    is_open: bool = True  # until a result is written or the claim is given back
    # By an error of its own: the claim is left to its lease, and stays counted
    has_failed: bool = False

    def step(self, event: Any, times: Any) -> list[Step]:
        """Take an event in and return what follows."""
        before = self.submission
        self.submission, commands = state_machine.step(before, event, times)
        if any(isinstance(command, (Write, GiveBack)) for command in commands):
            self.is_open = False
        return [Step(self, before, command) for command in commands]


async def run(context, claim, event, asks=None):
    """Go from event to event until nothing more is to be done, or the claim is lost. Return the last event.

    `asks` {command: async (desk, claim, call, command) -> the next event, or None when there is nothing more to do}.
    """
    submission, last = await store.load(context, claim), None
    if submission is None:
        return None
    case = SubmissionRun(claim, submission)
    while event is not None:
        last, event = event, None
        for step in case.step(last, context.config):
            if carry_out := WRITING.get(type(step.command)):
                await carry_out(context, claim, step.before, step.command)
            else:
                event = await asks[type(step.command)](context, claim, step.before, step.command)
    return last


async def run_batch(context: SubmissionContext, company_id: int, steps: list[Step]) -> None:
    """Carry out the steps of several cases of one company: first all that was seen, then all results.

    Results that change no document are written in one statement; the others in transactions of their own, a few at a
    time. An error of one case leaves that case to its lease, and the others go on.
    """
    seen = [
        (step.case.claim, step.before, step.command)
        for step in steps
        if isinstance(step.command, Keep)
    ]
    if seen:
        await store.keep_batch(context, company_id, seen)
    writes = [step for step in steps if isinstance(step.command, Write)]
    plain = [step for step in writes if store.is_plain(step.command)]
    if plain:
        await store.write_batch(
            context, company_id, [(step.case.claim, step.before, step.command) for step in plain]
        )
    await _write_each(context, [step for step in writes if not store.is_plain(step.command)])
    if given := list(_given_back(steps)):
        await store.release_batch(context, company_id, given)


async def _write_each(context: SubmissionContext, steps: list[Step]) -> None:
    waiting = iter(steps)

    async def write() -> None:
        for step in waiting:
            try:
                await store.write(context, step.case.claim, step.before, step.command)
            except Exception as error:
                # To be given back: nothing is wrong with it
                step.case.is_open = is_interruption(error)
                step.case.has_failed = not step.case.is_open
                what = describe_error(error) if step.case.is_open else format_traceback(error)
                log.error("submission company=%d id=%d: %s", *step.case.claim.key.values(), what)

    await asyncio.gather(*[write() for _ in range(min(WRITERS, len(steps)))])


def _given_back(steps: Iterable[Step]) -> Iterable[tuple[Claim, timedelta]]:
    for step in steps:
        if isinstance(step.command, GiveBack):
            yield step.case.claim, step.command.wait
