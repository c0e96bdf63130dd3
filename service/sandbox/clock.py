"""Conversion of instants: Unix seconds inside the sandbox, UTC text in requests and responses."""

import math
from datetime import UTC, datetime
from typing import overload


@overload
def instant(seconds: float) -> str: ...
@overload
def instant(seconds: None) -> None: ...
@overload
def instant(seconds: float | None) -> str | None: ...
def instant(seconds: float | None) -> str | None:
    """Return an instant as `2026-09-14T03:26:02Z`, rounded down to seconds. None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Return the Unix seconds of a date or date-time, in UTC if it has no zone.

    Raises ValueError.
    """
    value = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
