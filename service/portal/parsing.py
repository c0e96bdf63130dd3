"""Reading of the portal's JSON: members of objects, and errors in all formats. No I/O, no clock.

A reader of a member returns a value, None if it is missing, or raises Unreadable with the end of a
sentence. Text from the portal is untrusted: characters that PostgreSQL cannot store are removed,
and lengths are limited.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from service.json_types import Json, JsonMapping, JsonObject

MOST_TEXT = 2000  # characters of one string
MOST_ERRORS = 200  # entries of one list of errors

#: Codes that decide the next step. They take precedence over an enclosing general code.
#: Portal: 8.4
DECISIVE = {
    name.lower(): name
    for name in (
        "OperationPeriodOver",
        "IncorrectState",
        "ActiveReferencingDocuments",
        "IncorrectSubmitter",
        "DuplicateSubmission",
        "MaximumSizeExceeded",
        "BadStructure",
    )
}

#: Wording of IncorrectSubmitter in the live portal, which sends it with a general code. Portal: 4.3
WRONG_SUBMITTER = "authenticated tin and documents tin"

#: Members of the web framework's own error body, in lower case. Portal: 8.3
PROBLEM_DETAILS = {"type", "title", "status", "traceid"}

#: One reason of an error, as stored and as shown to clients: {code, path, message}.
ErrorEntry = JsonObject

ID = re.compile(r"[0-9A-Za-z_-]{1,255}")
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:(\.\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

T = TypeVar("T")


class Unreadable(ValueError):
    """A member of a response is missing or invalid."""


def read_member(row: JsonObject, name: str, reader: Callable[[object], T]) -> T:
    """Return a member of a folded object. Raises Unreadable with a sentence."""
    try:
        return reader(row.get(name.lower()))
    except Unreadable as error:
        raise Unreadable(f"{name} {error}.") from None


def require(row: JsonObject, name: str, reader: Callable[[object], T | None]) -> T:
    """Return a member that must not be missing. Raises Unreadable with a sentence."""
    value = read_member(row, name, reader)
    if value is None:
        raise Unreadable(f"{name} is missing.")
    return value


def check_same(row: JsonObject, name: str, expected: str) -> None:
    """Raise Unreadable if an identifier is missing or another one."""
    if require(row, name, identifier) != expected.upper():
        raise Unreadable(f"The response is about another {name}.")


def text(value: object) -> str | None:
    """Return a cleaned string; None if it is null, empty or missing."""
    if value is not None and not isinstance(value, str):
        raise Unreadable("is not a string")
    return clean_text(value or "") or None


def number(value: object) -> str | None:
    """Return a document number unchanged: cleaned, it could be another document's number."""
    found = text(value)
    if found is not None and found != value:
        raise Unreadable("is not a document number")
    return found


def identifier(value: object) -> str | None:
    """Return the identifier of a document or submission in upper case, as the portal assigns it."""
    found = opaque(value)
    return found and found.upper()


def opaque(value: object) -> str | None:
    """Return an identifier of the portal unchanged. It is safe in a URL."""
    found = text(value)
    if found is not None and not ID.fullmatch(found):
        raise Unreadable("is not an identifier")
    return found


def instant(value: object) -> datetime | None:
    """Return a date-time as UTC, to the microsecond."""
    found = text(value)
    if found is None:
        return None
    if match := _INSTANT.fullmatch(found):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(match[1] + (match[2] or "") + (match[3] or "Z"))
            return moment.astimezone(UTC)
    raise Unreadable("is not a date-time")


def count(value: object) -> int:
    """Return a number of rows or pages."""
    if type(value) is not int or value < 0:
        raise Unreadable("is not a count")
    return value


def objects(value: object) -> list[JsonObject]:
    """Return the objects of a list, folded; an empty list for null."""
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise Unreadable("is not a list of objects")
    return [fold_members(each) for each in values]


def flatten_error(error: Json) -> list[ErrorEntry]:
    """Return the innermost entries of an error in any format. Portal: 8.1, 8.2, 8.3

    Accepts a whole body, the object in its `error`, or a list of these. Other values have no
    entries.
    """
    return list(islice(_leaves(error), MOST_ERRORS))


def authority_code(error: Json) -> str | None:
    """Return the decisive code at any depth, else the first code, else None. Portal: 6"""
    codes = list(islice(_codes(error), MOST_ERRORS))
    decisive = [DECISIVE[code.lower()] for code in codes if code.lower() in DECISIVE]
    if any(WRONG_SUBMITTER in entry["message"].lower() for entry in flatten_error(error)):
        decisive.append("IncorrectSubmitter")
    return next(iter(decisive + codes), None)


def clean_text(text: str) -> str:
    """Remove NUL characters and unpaired surrogates, and truncate to MOST_TEXT characters."""
    return _UNSTORABLE.sub("", text)[:MOST_TEXT]


def clean_json(value: Json) -> Json:
    """Return a JSON value with all strings cleaned and all lists and objects truncated."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_json(item) for item in value[:MOST_ERRORS]]
    if isinstance(value, dict):
        return {
            clean_text(name): clean_json(item) for name, item in list(value.items())[:MOST_ERRORS]
        }
    return value


def is_portal_error(body: Json) -> bool:
    """Return whether a body is an error in one of the portal's three formats."""
    if not isinstance(body, dict):
        return False
    members = fold_members(body)
    is_own = isinstance(members.get("error"), dict) or "errorcode" in members
    return is_own or members.keys() >= PROBLEM_DETAILS


def is_not_found(body: Json) -> bool:
    """Return whether a body is a "not found" in one of the portal's three formats."""
    if not isinstance(body, dict):
        return False
    error = fold_members(body).get("error")
    if "notfound" in {code.lower() for code in _codes(error)}:
        return True
    depths = [fold_members(each) for each in (body, error) if isinstance(each, dict)]
    return any(each.keys() >= PROBLEM_DETAILS and each["status"] == 404 for each in depths)


def login_errors(members: JsonMapping, body: Json) -> list[ErrorEntry]:
    """Return the entries of a login error; OAuth has a string and its description. Portal: 2.2"""
    code = members.get("error")
    if not isinstance(code, str):
        return flatten_error(body)
    return [_entry(code, "", members.get("error_description"))]


def fold_members(members: JsonMapping) -> JsonObject:
    """Return the members under lower-case names, since the portal's casing varies. Portal: 15

    Of members that differ only in case, the first that is not null is used.
    """
    folded: JsonObject = {}
    for name, value in members.items():
        if folded.get(name.lower()) is None:
            folded[name.lower()] = value
    return folded


def _leaves(node: Json) -> Iterator[ErrorEntry]:
    if isinstance(node, list):
        for child in node:
            yield from _leaves(child)
    if not isinstance(node, dict):
        return
    node = fold_members(node)
    deeper = False
    for entry in _inner_leaves(node):
        deeper = True
        yield entry
    code, message = _code(node), _message(node)
    if not deeper and (code or message):
        yield _entry(code, node.get("propertypath"), message)


def _inner_leaves(node: JsonObject) -> Iterator[ErrorEntry]:
    yield from _leaves(_children(node))
    fields = node.get("errors")  # problem details: field -> messages
    for name, messages in fields.items() if isinstance(fields, dict) else ():
        for message in messages if isinstance(messages, list) else [messages]:
            yield _entry(None, name, message)


def _codes(node: Json) -> Iterator[str]:
    if isinstance(node, list):
        for child in node:
            yield from _codes(child)
    if isinstance(node, dict):
        node = fold_members(node)
        if code := _code(node):
            yield code
        yield from _codes(_children(node))


def _children(node: JsonObject) -> list[Json]:
    return [
        node[name]
        for name in ("error", "details", "innererror")
        if isinstance(node.get(name), dict | list)
    ]


def _code(node: JsonObject) -> str | None:
    for code in (node.get("code"), node.get("errorcode")):
        if type(code) in (str, int) and str(code).strip():
            return clean_text(str(code).strip())
    return None


def _message(node: JsonObject) -> str | None:
    texts = (node.get("message"), node.get("error"), node.get("title"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def _entry(code: str | None, path: object, message: object) -> ErrorEntry:
    texts = [clean_text(text).strip() if isinstance(text, str) else "" for text in (path, message)]
    return {"code": clean_text(code) if code else None, "path": texts[0], "message": texts[1]}
