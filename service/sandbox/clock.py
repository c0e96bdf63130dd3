"""Instants: Unix seconds inside, UTC text outside."""

import math
from datetime import UTC, datetime
from email.utils import formatdate


def instant(seconds):
    """`2026-09-14T03:26:02Z`; null stays null. Whole seconds, rounded down."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_instant(seconds):
    """The form of X-Rate-Limit-Reset, with seven digits of a second. Portal: 1.3."""
    return f"{instant(seconds)[:-1]}.{round(seconds % 1 * 10**6):06d}0Z"


def seconds_of(text):
    """Unix seconds of a date or a date-time; without a zone it is UTC. Raises ValueError."""
    value = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def http_date(seconds):
    return formatdate(seconds, usegmt=True)
