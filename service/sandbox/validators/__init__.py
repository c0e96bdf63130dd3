"""The portal's checks: structure and core fields at submission, others afterwards. Portal: 14"""

from datetime import UTC, datetime
from typing import Any, NamedTuple


class Finding(NamedTuple):
    """One broken rule. `code` is null if the authority has not published one."""

    code: str | None
    message: str
    target: str | None = None
    path: str | None = None


def last(path: str) -> str:
    """Return the name of the last element of a path."""
    return path.rpartition(".")[2]


def finding_at(path: str, code: str | None, message: str, attribute: str = "") -> Finding:
    """Return a finding at a path of the invoice, for the steps after the submission.

    The path is shown in the portal's notation, without the index of an entry. Portal: 15
    """
    names = [f"{name}[*]" for name in path.split(".")] + [attribute] * bool(attribute)
    return Finding(code, message, last(path), ".".join(("$.Invoice[*]", *names)))


def read_exactly(text: Any, layout: str) -> datetime | None:
    """Return the time, in UTC, of a text in a layout of strptime with all digits, else None."""
    try:
        found = datetime.strptime(text, layout).replace(tzinfo=UTC)
    except (TypeError, ValueError):
        return None
    return found if found.strftime(layout) == text else None
