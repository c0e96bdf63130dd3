"""Conversion of instants: Unix seconds inside the sandbox, UTC text in requests and responses."""

import math
from datetime import UTC, datetime
from typing import Any


def instant(seconds: float) -> str:
    """Return an instant as `2026-09-14T03:26:02Z`, rounded down to seconds."""
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Return the Unix seconds of a date or date-time, in UTC if it has no zone.

    Raises ValueError.
    """
    value = datetime.fromisoformat(text)
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def read_exactly(text: Any, layout: str) -> datetime | None:
    """Return the time, in UTC, of a text in a layout of strptime with all digits, else None."""
    try:
        found = datetime.strptime(text, layout).replace(tzinfo=UTC)
    except (TypeError, ValueError):
        return None
    return found if found.strftime(layout) == text else None
