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
