"""Driving the machine: each command is carried out in its order, and what comes of it is the next event."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from service import machine
from service.calls import NOW, GiveBack, Keep, Write
from service.portal.client import LoginRefused, PortalError, Throttled
from service.submission import record

#: Carries out a command: (desk, claim, call, command) -> the next event, or None when there is nothing more to do.
Ask = Callable[[Any, Any, Any, Any], Awaitable[Any]]

#: command -> what carries it out and brings no news; whoever drives gives what asks the portal.
WRITING = {Keep: record.keep, Write: record.write, GiveBack: record.give_back}


LONGEST_LOGIN_WAIT = timedelta(minutes=5)  # work looks again by then whether the credentials were changed


def wait_of(why: PortalError) -> timedelta | None:
    """Return for how long a failed call is not repeated, or None where the failure does not say."""
    if isinstance(why, LoginRefused):
        return LONGEST_LOGIN_WAIT if why.retry_after is None else min(why.retry_after, LONGEST_LOGIN_WAIT)
    return why.retry_after if isinstance(why, Throttled) else None


def held(why, operation):
    """For how long a claim is given back for which a call was Held.

    What waits for the flow's own operation is due again at once: the workers take up no such work until the operation
    is free, and then whoever's turn it is. Anything else is this submission's to wait for.
    """
    return NOW if why.operation == operation else why.retry_after


async def drive(desk, claim, event, asks=None):
    """Goes from event to event until nothing more is to be done, or the claim is lost; returns the last event.

    `asks` {command: async (desk, claim, call, command) -> the next event, or None when there is nothing more to do}.
    """
    call, last = await record.load(desk, claim), None
    while call is not None and event is not None:
        last, event = event, None
        next, commands = machine.step(call, last, desk.config)
        for command in commands:
            if type(command) in WRITING:
                await WRITING[type(command)](desk, claim, call, command)
            else:
                event = await asks[type(command)](desk, claim, call, command)
        call = next
    return last
