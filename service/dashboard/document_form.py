"""Forms of documents with lines: their fields, and the bodies that they describe.

The name of a field is the JSON Pointer of its member in the body of the API, so that violations are
shown at their fields. Members of a stored document that the form does not show are kept.
"""

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp import web

from service.dashboard.operations import Answer, Failed
from service.http.forms import FORM, read_decimal, read_number
from service.json_types import Json, JsonMapping, JsonObject

MOST_LINES = 100  # that a form shows; the API accepts more
TOTALS = "totals"  # the element with the totals
#: Members that are numbers in the body.
NUMBERS = {
    "code",
    "adjustmentNoteCode",
    "price",
    "count",
    "percentage",
    "amount",
    "exchangeRate",
    "perUnitAmount",
}
#: Members that are instants. A form has them without an offset, in the business time zone.
INSTANTS = {"issueDateTime", "adjustmentNoteIssueDate"}
#: The members of a line that the form shows, below the line.
LINE = (
    "/description",
    "/classifications/0",
    "/unit/count",
    "/unit/code",
    "/unit/price",
    "/discount/amount",
    "/taxDetails/0/taxType",
    "/taxDetails/0/taxRate/percentage",
    "/taxExemptionReason",
)
#: The members of a new line that are those of the line before.
LIKE_BEFORE = (
    "/classifications/0",
    "/unit/code",
    "/taxDetails/0/taxType",
    "/taxDetails/0/taxRate/percentage",
)
#: Names of fields: members, or members of one of the first hundred lines. Lists have few entries.
_NAME = re.compile(
    r"/(?!lineItems)[A-Za-z]{1,40}(/[A-Za-z][A-Za-z0-9]{0,40}|/[0-9]){0,4}"
    r"|/lineItems/[0-9]{1,2}(/[A-Za-z][A-Za-z0-9]{0,40}|/[0-9]){1,5}",
    re.ASCII,
)

Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """The content of a form: its fields, messages at fields, and the body whose totals it shows."""

    fields: Fields
    wrong: Mapping[str, str] = field(default_factory=dict)
    body: JsonMapping | None = None
    status: int = 200
    focus: str = ""  # field with the cursor; by default the first one with a message
    made: str | None = None  # path of the document that the form has created before


def refuse(answer: Answer, fields: Fields, body: JsonMapping) -> Form:
    """Return the form with the violations of an answer. Raises Failed for another error."""
    if answer.status not in (403, 409, 412, 422):
        raise Failed(answer)
    return Form(fields, answer.violations or {"": answer.message}, body, answer.status)


def place_messages(wrong: Mapping[str, str], shown: Sequence[str]) -> Fields:
    """Return messages by the field that shows the member, or the first part of the member."""
    placed: Fields = {}
    for path, message in wrong.items():
        places = (path, f"{path}/tin", *(name for name in shown if name.startswith(f"{path}/")))
        name = next((place for place in places if path and place in shown), path)
        placed[name] = f"{placed[name]} {message}" if name in placed else message
    return placed


def read_fields(request: web.Request) -> tuple[Fields, str]:
    """Return the fields of the form, and the button that was pressed."""
    form = request[FORM]
    fields = {name: text.strip() for name, text in form.items() if _NAME.fullmatch(name)}
    return fields, form.get("do", "save")


def count_lines(fields: Mapping[str, str]) -> int:
    """Return the number of lines of the form, at least one."""
    numbers = [int(name.split("/")[2]) for name in fields if name.startswith("/lineItems/")]
    return min(MOST_LINES, max(numbers, default=0) + 1)


def change_lines(fields: Fields, choice: str) -> Fields | None:
    """Return the fields with a line added or removed, or None for another button."""
    count = count_lines(fields)
    if choice == "add":
        like = {name: fields.get(f"/lineItems/{count - 1}{name}", "") for name in LIKE_BEFORE}
        added = {**like, "/unit/count": "1"}
        return {**fields, **{f"/lineItems/{count}{name}": text for name, text in added.items()}}
    verb, _, text = choice.partition(":")
    gone = read_number(text, 2)
    if verb != "remove" or gone is None:
        return None
    changed: Fields = {}
    for name, value in fields.items():
        parts = name.split("/")
        if parts[1] == "lineItems":
            number = int(parts[2])
            if number == gone and count > 1:
                continue
            parts[2] = str(number - (number > gone))
        changed["/".join(parts)] = value
    return changed


def find_focus(fields: Mapping[str, str], choice: str) -> str:
    """Return the field with the cursor after a line was added or removed."""
    last = count_lines(fields) - 1
    number = read_number(choice.partition(":")[2], 2)
    return f"/lineItems/{last if number is None else min(number, last)}/description"


def build_body(fields: Mapping[str, str], stored: JsonMapping, zone: ZoneInfo) -> JsonObject:
    """Return the body that fields describe.

    Members of `stored` without a field are kept, and so are those whose field was not changed: it
    may show less, such as an instant without seconds.
    """
    body: JsonObject = copy.deepcopy(dict(stored))
    # Each stored line is taken once: a hundred copies of a large one would be megabytes.
    left: dict[int | None, JsonObject] = dict(enumerate(body.get("lineItems") or []))
    origins = (
        fields.get(f"/lineItems/{number}/origin", "") for number in range(count_lines(fields))
    )
    body["lineItems"] = [left.pop(read_number(origin, 5), {}) for origin in origins]
    shown = describe_body(body, zone)
    for pointer, text in fields.items():
        steps = pointer.split("/")[1:]
        is_kept = steps[-1] not in NUMBERS and text == _as_sent(shown.get(pointer, ""))
        if steps[-1] != "origin" and not is_kept:
            _set(body, steps, _convert(pointer, text, zone))
    taken = {line.get("id") for line in body["lineItems"]}
    for number, line in enumerate(body["lineItems"], 1):
        if "id" not in line:
            line["id"] = next(
                each for each in map(str, itertools.count(number)) if each not in taken
            )
            taken.add(line["id"])
    return _without_empty(body)


def _as_sent(text: str) -> str:
    """Return the text that a browser sends for a field that was not changed."""
    return re.sub(r"[\r\n]", "", text).strip()


def _convert(pointer: str, text: str, zone: ZoneInfo) -> Json:
    """Return the value of a member: a number, an instant with an offset, or the text."""
    name = pointer.rsplit("/", 1)[1]
    if name in NUMBERS:
        return read_decimal(text)
    if text and name in INSTANTS:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return text
        return (at if at.tzinfo else at.replace(tzinfo=zone)).isoformat()
    return text


def _set(parent: Any, steps: Sequence[str], value: Json) -> None:
    """Set a member of a body by the steps of its pointer. Missing objects and arrays are made.

    A member of a stored array is left out: no form has such a field.
    """
    step, *rest = steps
    place: Any = step
    if isinstance(parent, list):
        if not step.isdigit():
            return
        place = int(step)
        parent.extend([""] * (place + 1 - len(parent)))
    elif step not in parent:
        parent[step] = None
    if not rest:
        parent[place] = value
        return
    if not isinstance(parent[place], dict | list):
        parent[place] = [] if rest[0].isdigit() else {}
    _set(parent[place], rest, value)


def _without_empty(value: object) -> Any:
    """Return a value without empty texts, and without the objects that are empty without them."""
    if isinstance(value, dict):
        members = {name: _without_empty(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in ("", {}, [])}
    if isinstance(value, list):
        entries = [_without_empty(entry) for entry in value]
        return [entry for entry in entries if entry not in ("", {})]
    return value


def describe_body(body: JsonMapping, zone: ZoneInfo) -> Fields:
    fields = dict(_flatten(body, ""))
    for name in INSTANTS & body.keys():
        fields[f"/{name}"] = describe_instant(datetime.fromisoformat(body[name]), zone)
    for number in range(len(body["lineItems"])):
        fields[f"/lineItems/{number}/origin"] = str(number)
    return fields


def describe_instant(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%dT%H:%M}"


def _flatten(value: object, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield (JSON Pointer, text) of the members of a value that are not objects or arrays."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _flatten(member, f"{pointer}/{name}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _flatten(entry, f"{pointer}/{index}")
    elif value is not None:
        yield pointer, format(value, "f") if isinstance(value, Decimal) else str(value)
