"""Numbers in forms and query strings."""

import re


def read_number(text: str, digits: int) -> int | None:
    """Return a natural number of at most `digits` digits, or None for another text."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{digits}}}", text, re.ASCII) else None
