"""Numbers in forms and query strings."""

import re
from decimal import Decimal

_DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", re.ASCII)


def read_number(text: str, digits: int) -> int | None:
    """Return a natural number of at most `digits` digits, or None for another text."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{digits}}}", text, re.ASCII) else None


def read_decimal(text: str) -> int | Decimal | str:
    """Return a number without its commas, or another text as it is: the API reports it."""
    plain = text.replace(",", "")
    if not _DECIMAL.fullmatch(plain):
        return text
    number = Decimal(plain)
    return int(number) if number == number.to_integral_value() else number
