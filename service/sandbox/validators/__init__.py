"""What the portal checks. Structure and core fields at submission, the others in the background. Portal: 14"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One broken rule. `code` is null where the authority published none."""

    code: str | None
    message: str
    target: str | None = None
    path: str | None = None
    malay: str = "Dokumen tidak sah."


def wildcard(path, attribute=None):
    """A dotted path as the portal writes it: it shows the rule, not the place. Portal: 15"""
    return (
        "$.Invoice[*]"
        + "".join(f".{name}[*]" for name in path.split("."))
        + (f".{attribute}" if attribute else "")
    )
