"""How UBL 2.1 is written in JSON: every element is an array, and what is absent is left out. Portal: 10.1

Texts are trimmed and cut to the portal's lengths; numbers that identify something are never cut.
"""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def value(content, **attributes):
    return [{"_": content, **attributes}]


def entry(**members):
    """One entry of an array of groups, without what is absent."""
    return {name: member for name, member in members.items() if member}


def group(**members):
    """A group as an element, or nothing when all of it is absent."""
    kept = {name: member for name, member in members.items() if member}
    return [kept] if kept else None


def amount(decimal, currency):
    return [{"_": decimal, "currencyID": currency}]


def text(content, limit=None):
    """Trimmed, without line feeds and other control characters, cut to `limit` characters if there is one."""
    kept = content or ""
    if not kept.isprintable():  # true of most, and told much sooner than the pattern can
        kept = _CONTROL.sub(" ", kept)
    return kept.strip()[:limit].rstrip()


def mandatory(content, limit=None, **attributes):
    """The text as an element that is there even when it is blank."""
    return value(text(content, limit), **attributes)


def optional(content, limit=None, **attributes):
    """The text as an element, or nothing when it is absent or blank."""
    kept = text(content, limit)
    return kept and value(kept, **attributes)
