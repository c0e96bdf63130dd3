"""What a cancellation does next, as a table: `step(event) -> commands`. No I/O, no clock.

The wish is on disk before the portal is asked. Its answer is believed only when it says that it is done: a repeated call
may be refused because the first one did its work, so that otherwise the document's own state decides.
"""

from dataclasses import dataclass
from datetime import datetime

# What happens


@dataclass(frozen=True, slots=True)
class Begun:
    """The wish was written, by the process that is to carry it out."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Whoever began it gave no result in time."""


@dataclass(frozen=True, slots=True)
class Done:
    """The portal says that it has cancelled the document."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It refused with the authority's `code`, or gave no answer (None)."""

    code: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """The state that the portal shows of the document, and the code of the refusal before."""

    status: str
    cancelled_at: datetime | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class NotShown:
    """The state cannot be read either: the cancellation stays under way, and is resumed."""


# What is to be done


@dataclass(frozen=True, slots=True)
class Put:
    """Ask the portal to cancel: Done or Failed."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask it for the document's state: Shown or NotShown."""

    code: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Write that the document is cancelled, whoever asks by now: it is a fact."""

    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Write that it is not, if nobody else has taken the cancellation over."""

    code: str | None = None


def step(event):
    """The commands that follow on an event."""
    return RULES[type(event)](event)


def _shown(event):
    return [Note(event.cancelled_at)] if event.status == "Cancelled" else [End(event.code)]


RULES = {
    Begun: lambda event: [Put()],
    Resumed: lambda event: [Read()],
    Done: lambda event: [Note()],
    Failed: lambda event: [Read(event.code)],
    Shown: _shown,
    NotShown: lambda event: [],
}
