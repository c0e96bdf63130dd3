"""Rules of the portal: validity dates, condition, message and fix, and how they are applied.

The rules are in party.py, line.py and document.py; preflight.py applies them to a document. A rule
checks what would be sent: texts that `document.build` trims, cuts or normalises are valid.
Portal: 14
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from service import json_codec
from service.documents import codes
from service.documents.money import AmountError, Totals, compute_document
from service.documents.ubl import document, elements
from service.json_types import Json, JsonMapping, JsonObject

PORTAL_ZONE = timezone(timedelta(hours=8))
#: The days, in this zone, on which the portal started to apply a rule.
RATE_MANDATORY = date(2025, 9, 1)  # Portal: 10.2
STATES_STRICT = date(2026, 4, 30)  # Portal: 12.2
REGISTER_STRICT = date(2026, 8, 1)  # Portal: 3.1
FORMATS_STRICT = date(2026, 8, 15)  # lengths, characters, units. Portal: 12.8, 14.3

#: Codes of this service for violations without a published code: an absent member, and a wrong
#: length, form or character.
REQUIRED, FORMAT = "Required", "Format"

#: The result of a fix that removes the member.
REMOVED = object()

CONSOLIDATED = "004"
_NOTHING: JsonObject = {}


class CheckFinding(NamedTuple):
    """A broken rule.

    `path` points into the request body, or names a column of the company: /company/msic_code.
    `patch` is a JSON Patch (RFC 6902).
    """

    code: str
    path: str
    message: str
    patch: list[JsonObject] | None = None
    stops: bool = False
    is_warning: bool = False

    def entry(self) -> JsonObject:
        """Return the finding in the shape of the API."""
        shown: JsonObject = {"code": self.code, "path": self.path, "message": self.message}
        return {**shown, "patch": self.patch} if self.patch else shown


class Circumstances(NamedTuple):
    """Facts about a document that its record does not have; instants are in UTC.

    `at` is the time of sending, `issued_at` the issue time that would be sent.
    """

    at: datetime
    issued_at: datetime
    duplicate: str | None = None  # uuid of a duplicate that was validated within the last two hours


@dataclass(frozen=True)
class Case:
    """A document to check: its source in the request shape, its issuer, and the circumstances."""

    source: JsonObject
    issuer: JsonMapping
    circumstances: Circumstances

    @cached_property
    def day(self) -> date:
        """The day of sending in the portal's time zone."""
        return self.circumstances.at.astimezone(PORTAL_ZONE).date()

    @cached_property
    def issue_day(self) -> date:
        """The day of issue in the portal's time zone."""
        return self.circumstances.issued_at.astimezone(PORTAL_ZONE).date()

    @cached_property
    def items(self) -> list[JsonObject]:
        return self.source.get("lineItems") or []

    @cached_property
    def self_billed(self) -> bool:
        return document.is_self_billed(self.source)

    @property
    def is_note(self) -> bool:
        """True for a credit, debit or refund note."""
        return self.source["type"] in document.NOTE_TYPES

    @cached_property
    def currency(self) -> str:
        return self.source.get("currencyCode") or document.HOME_CURRENCY

    @cached_property
    def is_consolidated(self) -> bool:
        """True if every line has the classification of consolidated documents only. Portal: 13"""
        return bool(self.items) and all(
            item.get("classifications") == [CONSOLIDATED] for item in self.items
        )

    @cached_property
    def sums(self) -> Totals | AmountError:
        """The amounts of the document, or the error in them."""
        try:
            return compute_document(self.source)
        except AmountError as error:
            return error

    @property
    def issue_member(self) -> str:
        return "/adjustmentNoteIssueDate" if self.is_note else "/issueDateTime"


class Place(NamedTuple):
    """A part of a document that rules check.

    `given` is the part in the request shape, `sent` has members of it as the document would have
    them, `words` are the arguments of messages. A place in the issuer has `columns`, {member:
    column of the company}. `side` selects a rule's code: 1 for the buyer, 0 for all others.
    Members in `waived` may be absent.
    """

    case: Case
    path: str
    given: Any
    sent: JsonObject = _NOTHING
    words: JsonMapping = _NOTHING
    columns: Mapping[str, str] | None = None
    side: int = 0
    waived: frozenset[str] = frozenset()

    def value(self, member: str) -> Any:
        """Return the value at a pointer below this place, or None."""
        return resolve(self.given, member)

    def sent_text(self, member: str) -> str:
        """Return the text that the document would have at a pointer below this place, or ""."""
        return (resolve(self.sent, member) or "").strip()

    def lacks(self, member: str) -> bool:
        """Return whether the member is absent, blank or empty; the number 0 is present."""
        found = self.value(member)
        if isinstance(found, str):
            return not elements.clean_text(found)
        return found in (None, [], {})

    def pointer(self, member: str) -> str:
        """Return the path of a finding about the member."""
        return f"/company/{self.columns[member]}" if self.columns else self.path + member


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the portal that applies from the day `since`.

    `code` may be a pair for supplier and buyer. `member` is a pointer below the place, `message` a
    text with the place's words, or empty if `refuses` returns the message. `fix` returns the valid
    value of the member, REMOVED, or None if only a person can decide. While a rule with `stops` is
    broken, no document can be built.
    """

    code: str | tuple[str, str]
    member: str
    refuses: Callable[[Place], object]
    message: str = ""
    since: date = date.min
    is_warning: bool = False
    fix: Callable[[Place], object] | None = None
    stops: bool = False


def resolve(holder: Json, pointer: str) -> Any:
    """Return the value at a JSON Pointer, or None."""
    for name in _split_pointer(pointer):
        if isinstance(holder, list):
            holder = holder[int(name)]
        else:
            holder = holder.get(name) if isinstance(holder, dict) else None
    return holder


@lru_cache(maxsize=512)
def _split_pointer(pointer: str) -> list[str]:
    return pointer.split("/")[1:]


def apply_rule(rule: Rule, place: Place) -> CheckFinding | None:
    """Return the Finding if the place breaks the rule, or None."""
    if not (refusal := rule.refuses(place)):
        return None
    code = rule.code if isinstance(rule.code, str) else rule.code[place.side]
    message = rule.message.format(**place.words) or str(refusal)
    path, patch = place.pointer(rule.member), _patch(rule, place)
    return CheckFinding(code, path, message, patch, rule.stops, rule.is_warning)


def _patch(rule: Rule, place: Place) -> list[JsonObject] | None:
    """Return the fix as a JSON Patch, or None. It empties a column of the company to remove it."""
    path = place.pointer(rule.member)
    fixed = rule.fix(place) if rule.fix and _can_change(place.case, path) else None
    if fixed is None:
        return None
    if fixed is REMOVED and not place.columns:
        return [{"op": "remove", "path": path}]
    return [{"op": "replace", "path": path, "value": "" if fixed is REMOVED else fixed}]


def _can_change(case: Case, path: str) -> bool:
    """Return whether a request can change the value at a path.

    A note has the parties of its invoice, a consolidated invoice the lines of its invoices.
    """
    if path.startswith("/company/"):
        return True
    if case.is_note:
        return path.startswith((case.issue_member, "/lineItems/"))
    return not case.source["type"].startswith("CONSOLIDATED_")


# Conditions and fixes of several rules


def is_public(place: Place) -> bool:
    """Return whether the place is an unnamed party, which has fixed particulars. Portal: 10.13"""
    return place.value("/type") == "GENERAL_PUBLIC"


def _applies_always(place: Place) -> bool:
    return True


def malformed(
    member: str,
    form: re.Pattern[str],
    applies: Callable[[Place], object] = _applies_always,
) -> Callable[[Place], bool]:
    """Return a condition: the member would be sent, and breaks its form where that `applies`."""

    def is_malformed(place: Place) -> bool:
        text = place.sent_text(member)
        return text != "" and not form.fullmatch(text) and bool(applies(place))

    return is_malformed


def keep_only(characters: str, other: str = "") -> Callable[[str], str]:
    """Return a function that replaces the other characters of a text."""

    def repair(text: str) -> str:
        return " ".join(re.sub(f"[^{characters}]+", other, text).split())

    return repair


def formed(
    member: str,
    form: re.Pattern[str],
    message: str,
    code: str = FORMAT,
    applies: Callable[[Place], object] = _applies_always,
    repair: Callable[[str], str] | None = None,
) -> Rule:
    """Return the rule of a member that must have a form where that `applies`.

    Its fix is the repaired text, if that has the form.
    """

    def fix(place: Place) -> str | None:
        repaired = repair(place.sent_text(member)) if repair else None
        return repaired if repaired is not None and form.fullmatch(repaired) else None

    condition = malformed(member, form, applies)
    return Rule(code, member, condition, message, FORMATS_STRICT, fix=fix)


def coded(
    table: str,
    member: str = "",
    since: date = date.min,
    applies: Callable[[Place], object] = _applies_always,
) -> tuple[Rule, Rule]:
    """Return the rules of a member that holds a code: it is known, and valid on the issue date.

    They are for places to which it `applies`. Portal: 14.5
    """

    def get_code(place: Place) -> str | None:
        code = place.value(member)
        return code if code and not code.isspace() and applies(place) else None

    def find_unknown(place: Place) -> str | None:
        code = get_code(place)
        if code is None or codes.is_known(table, code):
            return None
        return codes.describe_unknown_code(table, code)

    def find_invalid(place: Place) -> str | None:
        code, day = get_code(place), place.case.issue_day
        if code is None:
            return None
        first, last = codes.get_tables()[table].get_validity(code)
        if first <= day <= last:
            return None
        limit = f"from {first}, after" if day < first else f"until {last}, before"
        return f'"{code}" of the table of {table} is valid {limit} the issue date of the document.'

    return (
        Rule("CV302", member, find_unknown, since=since),
        Rule("CF320", member, find_invalid, since=since),
    )


def require(member: str, message: str, code: str | tuple[str, str] = REQUIRED) -> Rule:
    """Return the rule of a mandatory member, without which no document can be built."""

    def is_absent(place: Place) -> bool:
        return member not in place.waived and place.lacks(member)

    return Rule(code, member, is_absent, message, stops=True)


#: Part of a document -> its mandatory members: pointer, name, and the code if it is absent, or the
#: codes of supplier and buyer. Portal: 14.3
_FACTS: dict[str, list[tuple[str, str, str | tuple[str, str]]]] = json_codec.load_data(__file__)


def require_facts(part: str, wording: str) -> list[Rule]:
    """Return the rules of the mandatory members of a part. Messages have their names."""
    return [require(member, wording.format(name), code) for member, name, code in _FACTS[part]]
