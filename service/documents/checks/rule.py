"""What a rule of the portal is: from when it holds, where it looks, what it says, and how its breach is cured.

The rows stand in rules_party.py, rules_line.py and rules_document.py; preflight.py holds a document against them.
A rule looks at what would be sent: what `document.build` trims, cuts or normalises is no breach. Portal: 14
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from functools import cached_property, lru_cache
from typing import NamedTuple

from service.documents.money import AmountError, totals
from service.documents.ubl import document, elements

ERROR, WARNING = "error", "warning"

#: Our words where the portal published no code: something is absent; its length, form or characters
#: are wrong.
REQUIRED, FORMAT = "Required", "Format"

ALWAYS, EVER = date.min, date.max
#: The day on which the portal began to judge by a rule, in its own time zone.
RATE_MANDATORY = date(2025, 9, 1)  # Portal: 10.2
LARGE_SALES_APART = date(2026, 1, 1)  # Portal: 13
STATES_STRICT = date(2026, 4, 30)  # Portal: 12.2
REGISTER_STRICT = date(2026, 8, 1)  # Portal: 3.1
FORMATS_STRICT = date(2026, 8, 15)  # lengths, characters, units. Portal: 12.8, 14.3
DISCLOSURE = (date(2026, 7, 7), date(2027, 12, 31))  # versions 1.2 and 1.3. Portal: 9
PORTAL_ZONE = timezone(timedelta(hours=8))

#: A cure that takes the member away.
REMOVED = object()

CONSOLIDATED = "004"


class Rule(NamedTuple):
    """`member` is a pointer below the place that is looked at, `message` its words or what makes them of the place.

    `code` may be a pair: the supplier's and the buyer's. `cure` gives the value that the member should have, or
    REMOVED, or None where nobody but a person knows. While a rule that `stops` is broken no document can be built.
    """

    code: str | tuple
    member: str
    refuses: Callable
    message: str | Callable
    since: date = ALWAYS
    until: date = EVER
    severity: str = ERROR
    cure: Callable | None = None
    stops: bool = False


class Finding(NamedTuple):
    """A broken rule. `path` points into the request body, or names a column of the company: /company/msic_code."""

    severity: str
    code: str
    path: str
    message: str
    patch: list | None = None
    stops: bool = False

    def entry(self):
        """As an answer tells it."""
        told = {"code": self.code, "path": self.path, "message": self.message}
        return {**told, "patch": self.patch} if self.patch else told


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of a document beside its record; instants are in UTC.

    `at` is when it would be sent, `issued_at` the issue time that would be. `twin` is the uuid of a document of the
    same identity that the portal has judged within the two hours before, `original_tin` the issuer of what a note
    adjusts.
    """

    at: datetime
    issued_at: datetime
    number: str = ""
    version: str = "1.0"
    twin: str | None = None
    original_tin: str | None = None


@dataclass(frozen=True)
class Case:
    """A document to be judged: its source in the shape of a request, its issuer, and the circumstances."""

    source: dict
    issuer: dict
    circumstances: Circumstances

    @cached_property
    def day(self):
        """The day at the portal on which it would be sent."""
        return self.circumstances.at.astimezone(PORTAL_ZONE).date()

    @cached_property
    def issue_day(self):
        return self.circumstances.issued_at.astimezone(PORTAL_ZONE).date()

    @cached_property
    def items(self):
        return self.source.get("lineItems") or ()

    @cached_property
    def self_billed(self):
        return document.is_self_billed(self.source)

    @property
    def is_note(self):
        return self.source["type"] in document.NOTE_TYPES

    @cached_property
    def currency(self):
        return self.source.get("currencyCode") or document.HOME_CURRENCY

    @cached_property
    def is_consolidated(self):
        """The classification of consolidated documents, and no other, on every line. Portal: 13"""
        return bool(self.items) and all(
            item.get("classifications") == [CONSOLIDATED] for item in self.items
        )

    @cached_property
    def sums(self):
        """money.Totals, or the AmountError why there are none."""
        try:
            return totals(self.items, self.source.get("invoiceLevelAllowanceCharge"))
        except AmountError as error:
            return error

    @property
    def issue_member(self):
        return "/adjustmentNoteIssueDate" if self.is_note else "/issueDateTime"


@dataclass(frozen=True)
class Place:
    """What a rule looks at. `given` is as the request has it, `sent` the same as {fact: value} of the document.

    `words` are what a message may name. The facts of the issuer have `columns`, {member: column of the company}.
    """

    case: Case
    path: str
    given: object
    sent: dict = field(default_factory=dict)
    words: dict = field(default_factory=dict)
    columns: dict | None = None
    side: int = 0  # 0 what is the supplier's or nobody's, 1 what is the buyer's
    waived: set = field(default_factory=set)

    def value(self, member):
        """What the request has at the pointer below this place, None where it has nothing."""
        return at(self.given, member)

    def lacks(self, member):
        """Whether the member is absent, blank or empty; 0 is there."""
        found = self.value(member)
        return not (elements.text(found) if isinstance(found, str) else found not in (None, [], {}))

    def pointer(self, member):
        return f"/company/{self.columns[member]}" if self.columns else self.path + member


def at(holder, pointer):
    """What the pointer leads to, None where that is nothing."""
    for name in _steps(pointer):
        if isinstance(holder, (list, tuple)):
            holder = holder[int(name)]
        else:
            holder = holder.get(name) if isinstance(holder, dict) else None
    return holder


@lru_cache(maxsize=512)
def _steps(pointer):
    return pointer.split("/")[1:]


def judged(rule, place):
    """The Finding that the place breaks the rule, or None."""
    if not rule.refuses(place):
        return None
    code = rule.code if isinstance(rule.code, str) else rule.code[place.side]
    message = rule.message(place) if callable(rule.message) else rule.message.format(**place.words)
    return Finding(
        rule.severity, code, place.pointer(rule.member), message, _patch(rule, place), rule.stops
    )


def _patch(rule, place):
    """The cure as a JSON Patch (RFC 6902), None where there is none. A column of the company is emptied, not removed."""
    path = place.pointer(rule.member)
    cured = rule.cure(place) if rule.cure and _is_within(place.case, path) else None
    if cured is None:
        return None
    if cured is REMOVED and not place.columns:
        return [{"op": "remove", "path": path}]
    return [{"op": "replace", "path": path, "value": "" if cured is REMOVED else cured}]


def _is_within(case, path):
    """Whether a request can change what the path names: a note has its invoice's parties, a consolidated invoice
    the lines of its sales."""
    if path.startswith("/company/"):
        return True
    if case.is_note:
        return path.startswith((case.issue_member, "/lineItems/"))
    return not case.source["type"].startswith("CONSOLIDATED_")


# What several rules ask, and how they cure


def is_public(place):
    """Whether the place is a party that stays unnamed: what it has is ours. Portal: 10.13"""
    return isinstance(place.given, dict) and place.given.get("type") == "GENERAL_PUBLIC"


def only(characters, fact, form, most):
    """A cure that keeps these characters, if that gives the form."""

    def cure(place):
        kept = re.sub(f"[^{characters}]", "", place.sent[fact])
        return kept if form.fullmatch(kept) and len(kept) <= most else None

    return cure
