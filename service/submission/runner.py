"""Runs the state machine: applies events to submissions and carries out its commands."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from service.config import Config
from service.db.connections import TRANSIENT_DB_ERRORS, describe_or_trace, is_interruption
from service.errors import describe_error, format_traceback, make_reason
from service.portal.errors import Held, LoginRefused, PortalError, Throttled
from service.submission import store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.machine import state_machine
from service.submission.machine.types import (
    NO_DELAY,
    Claimed,
    Command,
    Error,
    Event,
    RecordSightings,
    ReleaseClaim,
    RequestFailed,
    Submission,
    Write,
)
from service.submission.own_clients import sign_in

Failure = TypeVar("Failure", bound=RequestFailed)
#: The work on a claimed submission in one of its states.
Flow = Callable[[CompanyContext, Claim], Awaitable[None]]

log = logging.getLogger(__name__)

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


def make_error(why: PortalError, code: str | None = None) -> Error:
    """Return a failed request as an error of the submission, by default with its class as code."""
    return make_reason(code or type(why).__name__, str(why))


def make_failure(
    kind: type[Failure], why: PortalError, operation: str, code: str | None = None
) -> Failure:
    """Return the event of a failed request.

    A submission held by the flow's own operation is due at once: workers claim no such work until
    the operation is free, and then in the order of the queue. Any other hold is waited out.
    """
    held_for = why.retry_after if isinstance(why, Held) else None
    if isinstance(why, Held) and why.operation == operation:
        held_for = NO_DELAY
    return kind(make_error(why, code), retry_delay(why), held_for)


@dataclass(slots=True)
class SubmissionRun:
    """A claimed submission in its state after all commands so far."""

    claim: Claim
    submission: Submission
    is_open: bool = True  # no result was written, and the claim has to be released

    #: Those to carry out, each with the submission before it.
    commands: list[tuple[Submission, Command]] = field(
        default_factory=list[tuple[Submission, Command]]
    )

    def apply(self, event: Event, times: Config) -> None:
        """Apply an event, and add the commands that follow."""
        before = self.submission
        self.submission, commands = state_machine.step(before, event, times)
        if any(isinstance(command, (Write, ReleaseClaim)) for command in commands):
            self.is_open = False
        self.commands += [(before, command) for command in commands]


async def run_claimed(context: SubmissionContext, claim: Claim, flow: Flow) -> None:
    """Run the flow of a claimed submission. A claim that the database interrupted is not counted.

    After another error the claim expires and stays counted.
    """
    try:
        await flow(await sign_in(context, claim.company_id), claim)
    except Exception as error:
        if not is_interruption(error):
            log.error("submission %s: failed\n%s", claim, format_traceback(error))
            return
        log.warning("submission %s: %s", claim, describe_error(error))
        released = [(claim, context.config.portal_retry)]
        try:
            await store.release(context, claim.company_id, released)
        except TRANSIENT_DB_ERRORS as error:
            text = "submission %s: the claim stays until its lease expires: %s"
            log.warning(text, claim, describe_error(error))


async def begin(context: SubmissionContext, claim: Claim) -> SubmissionRun | None:
    """Return a run of a claimed submission, or None if the claim was lost."""
    submission = await store.load(context, claim)
    return submission and SubmissionRun(claim, submission)


async def begin_claimed(context: SubmissionContext, claim: Claim) -> SubmissionRun | None:
    """Return a run of a claimed submission that still has to be worked on.

    Return None if the claim was lost, or if so many claims had no result that it needs a person.
    """
    submission_run = await begin(context, claim)
    if submission_run:
        await advance(context, submission_run, Claimed())
    return submission_run if submission_run and submission_run.is_open else None


async def advance(context: SubmissionContext, submission_run: SubmissionRun, event: Event) -> None:
    """Apply an event and carry out what follows."""
    claim = submission_run.claim
    submission_run.apply(event, context.config)
    while submission_run.commands:
        before, command = submission_run.commands.pop(0)
        match command:
            case RecordSightings():
                await store.record_sightings(context, claim.company_id, [(claim, before, command)])
            case Write():
                await store.write(context, claim, before, command)
            case ReleaseClaim(wait):
                await store.release(context, claim.company_id, [(claim, wait)])


async def run_batch(context: SubmissionContext, company_id: int, runs: list[SubmissionRun]) -> None:
    """Carry out the commands of several runs of one company: all sightings, then all results.

    Results that change no document are written in one statement, the others in one transaction
    each. An error of one run leaves that claim to expire, and the others continue.
    """
    sightings: list[tuple[Claim, Submission, RecordSightings]] = []
    plain: list[store.Move] = []
    others: list[tuple[SubmissionRun, Submission, Write]] = []
    released: list[tuple[Claim, timedelta | None]] = []
    for each in runs:
        for before, command in each.commands:
            if isinstance(command, RecordSightings):
                sightings.append((each.claim, before, command))
            elif isinstance(command, ReleaseClaim):
                released.append((each.claim, command.wait))
            elif store.is_plain(command):
                plain.append((each.claim, before, command))
            else:
                others.append((each, before, command))
    if sightings:
        await store.record_sightings(context, company_id, sightings)
    if plain:
        await store.write_batch(context, company_id, plain)
    await _write_each(context, iter(others))
    if released:
        await store.release(context, company_id, released)


async def _write_each(
    context: SubmissionContext, writes: Iterator[tuple[SubmissionRun, Submission, Write]]
) -> None:
    """Carry out Writes in WRITERS transactions at a time."""

    async def write() -> None:
        for each, before, command in writes:
            try:
                await store.write(context, each.claim, before, command)
            except Exception as error:
                # An interrupted claim is released. Any other error is the submission's own: its
                # claim expires and stays counted.
                each.is_open = is_interruption(error)
                log.error("submission %s: %s", each.claim, describe_or_trace(error))

    await asyncio.gather(*[write() for _ in range(WRITERS)])
