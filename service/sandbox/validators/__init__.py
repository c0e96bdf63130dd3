"""The portal's checks: structure and core fields at submission, others afterwards. Portal: 14"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One broken rule. `code` is null if the authority has not published one."""

    code: str | None
    message: str
    target: str | None = None
    path: str | None = None
    malay: str = "Dokumen tidak sah."


def wildcard(path: str, attribute: str | None = None) -> str:
    """Return a dotted path in the portal's notation, without the index of an entry. Portal: 15"""
    elements = "".join(f".{name}[*]" for name in path.split("."))
    return f"$.Invoice[*]{elements}" + (f".{attribute}" if attribute else "")


def last(path: str) -> str:
    """Return the name of the last element of a path."""
    return path.rpartition(".")[2]


def finding_at(
    path: str, code: str | None, message: str, malay: str, attribute: str | None = None
) -> Finding:
    """Return a finding at a path of the invoice, for the steps after the submission."""
    return Finding(code, message, last(path), wildcard(path, attribute), malay)
