"""Build UBL 2.1 elements in JSON: every element is an array, and absent ones are omitted.

Texts are trimmed and cut to the portal's lengths; numbers that identify something are never cut.
Portal: 10.1
"""

import re
from decimal import Decimal

from service.json_types import JsonMapping, JsonObject

Element = list[JsonObject]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def get_object(holder: JsonMapping, name: str) -> JsonObject:
    """Return a member that is an object, or {} if it is absent or null."""
    return holder.get(name) or {}


def value(content: object, **attributes: object) -> Element:
    return [{"_": content, **attributes}]


def entry(**members: object) -> JsonObject:
    """Return one entry of an array of groups, without absent members."""
    return {name: member for name, member in members.items() if member}


def group(**members: object) -> Element | None:
    """Return a group as an element, or None if all its members are absent."""
    present = entry(**members)
    return [present] if present else None


def amount(decimal: Decimal | int, currency: str) -> Element:
    return value(decimal, currencyID=currency)


def clean_text(content: str | None, limit: int | None = None) -> str:
    """Trim a text, replace control characters and line feeds by blanks, and cut it to `limit`."""
    kept = content or ""
    if not kept.isprintable():  # much faster than the pattern, and false for few texts
        kept = _CONTROL.sub(" ", kept)
    return kept.strip()[:limit].rstrip()


def mandatory(content: str | None, limit: int | None = None, **attributes: object) -> Element:
    """Return the cleaned text as an element, also if it is blank."""
    return value(clean_text(content, limit), **attributes)


def optional(content: str | None, limit: int | None = None, **attributes: object) -> Element | None:
    """Return the cleaned text as an element, or None if it is absent or blank."""
    kept = clean_text(content, limit)
    return value(kept, **attributes) if kept else None
