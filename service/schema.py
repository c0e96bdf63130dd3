"""Validation of request bodies against the JSON Schema files in schemas/, of draft 2020-12.

jsonschema-rs accepts valid bodies in microseconds. For a rejected body, jsonschema finds the
violations, which get messages of our own.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
from jsonschema import Draft202012Validator, FormatChecker, TypeChecker, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from service import json_codec, members
from service.errors import CODES, MAX_VIOLATIONS, Violation, violation
from service.json_types import Json, JsonMapping, JsonObject

FOLDER = Path(__file__).resolve().parent.parent / "schemas"
MANY_UNKNOWN = f"An object must not have more than {members.MOST_UNKNOWN} unknown members."
MANY_NAMES = (
    f"The request body must not have more than {members.MOST_NAMES} different unknown members."
)

#: The check of days in both validators: jsonschema-rs has years that Python does not have.
FORMATS = FormatChecker(["date"])
Schema = JsonObject
#: Yields the violations of a keyword.
Check = Callable[[Validator, object, Any, Schema], Iterable[ValidationError] | None]


def _load(path: Path) -> JsonObject:
    """Return the JSON of a file, with numbers as Decimal."""
    return json_codec.loads(path.read_bytes())


def _load_schemas() -> dict[str, Schema]:
    """Return {file stem: schema} of every file."""
    files = {path.stem: _load(path) for path in sorted(FOLDER.glob("*.json"))}
    files["records"] = _complete(files["records"])
    # Generators make a string of it, so that a client accepts a code that is newer than itself.
    files["records"]["$defs"]["ErrorCode"]["x-extensible-enum"] = sorted(CODES)
    _add_document_members(files)
    return files


#: {name: value}: the examples that several examples contain.
_EXAMPLE_PARTS = _load(FOLDER / "examples" / "parts.json")


def _complete(part: Any) -> Any:
    """Return a part of records.json with the type and the required members of its objects.

    All members are required, except for those that `optional` names. `{"$example": name}` in an
    example is replaced by the value of that name.
    """
    if isinstance(part, list):
        return [_complete(entry) for entry in cast(list[Any], part)]
    if not isinstance(part, dict):
        return part
    source, whole = cast(JsonObject, part), JsonObject()
    if "$example" in source:
        return _EXAMPLE_PARTS[source["$example"]]
    optional = source.pop("optional", ())
    for keyword, value in source.items():
        if keyword == "properties":
            whole.setdefault("type", "object")
            whole.setdefault("required", [name for name in value if name not in optional])
        whole[keyword] = _complete(value)
    return {keyword: value for keyword, value in whole.items() if value or keyword != "required"}


def name_in_record(name: str) -> str:
    """Return the name that a member of a body has in a record."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def _add_document_members(files: Mapping[str, Schema]) -> None:
    """Add the optional members of invoices and notes to their bodies, records and exports.

    A note to create has all members of an update, and the update of an e-invoice request those of
    its creation. A consolidated invoice has the sum of the roundings of its invoices, which has no
    limits.
    """
    members = files["common"]["$defs"]["document_members"]["properties"]
    for body in ("invoice_update", "adjustment_note_update"):
        files[body]["properties"].update(members)
    note_changes = files["adjustment_note_update"]["properties"]
    files["adjustment_note_create"]["properties"].update(note_changes)
    buyer_members = files["einvoice_request_create"]["properties"]
    files["einvoice_request_update"]["properties"].update(buyer_members)
    summed = {**members, "payableRoundingAmount": {"$ref": "#/$defs/Rounding"}}
    kinds = {"Invoice": members, "AdjustmentNote": members, "ConsolidatedInvoice": summed}
    for kind, exported in kinds.items():
        recorded = {name_in_record(name): member for name, member in exported.items()}
        files["records"]["$defs"][kind]["properties"].update(recorded)
        files["records"]["$defs"][f"{kind}Export"]["properties"].update(exported)


ALL = _load_schemas()
#: {name of a body's schema: {title: body}}: the examples of the OpenAPI description.
EXAMPLES: dict[str, JsonObject] = _complete(_load(FOLDER / "examples" / "requests.json"))
REGISTRY: Registry[Schema] = Registry().with_resources(
    (f"{name}.json", DRAFT202012.create_resource(schema)) for name, schema in ALL.items()
)


def get_values(name: str) -> list[str]:
    """Return the values that a definition of common.json allows."""
    return ALL["common"]["$defs"][name]["enum"]


def _is_integer(checker: TypeChecker, value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, Decimal) and value == value.to_integral_value()
    )


def _check_fast(keyword: str, type_name: str) -> Check:
    """Return a check of values of a type by jsonschema-rs.

    In a pattern `$` and `\\S` differ between ECMAScript and Python, and for uniqueItems jsonschema
    compares all pairs of entries.
    """

    def run(
        checker: Validator, part: object, value: Any, schema: Schema
    ) -> Iterator[ValidationError]:
        if checker.is_type(value, type_name) and not _rule_of(keyword, part).is_valid(value):
            yield ValidationError(f"violates {keyword}")

    return run


@cache
def _rule_of(keyword: str, part: object) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({keyword: part})


def _check_further_members(
    checker: Validator, allowed: object, value: Json, schema: Schema
) -> Iterable[ValidationError] | None:
    """Check additionalProperties. members.py finds those of a closed object.

    jsonschema sorts and quotes all of them in its message.
    """
    return _RULES["additionalProperties"](checker, allowed, value, schema) if allowed else None


def _check_unless_long(limit: str, check: Check) -> Check:
    """Return a check that leaves out a value which is too long: judging millions takes seconds."""

    def run(
        checker: Validator, part: object, value: Json, schema: Schema
    ) -> Iterable[ValidationError] | None:
        is_long = isinstance(value, list | dict) and len(value) > schema.get(limit, len(value))
        return None if is_long else check(checker, part, value, schema)

    return run


_RULES: dict[str, Check] = Draft202012Validator.VALIDATORS
_Careful = extend(
    Draft202012Validator,
    {
        "pattern": _check_fast("pattern", "string"),
        "items": _check_unless_long("maxItems", _RULES["items"]),
        "uniqueItems": _check_unless_long("maxItems", _check_fast("uniqueItems", "array")),
        "propertyNames": _check_unless_long("maxProperties", _RULES["propertyNames"]),
        "additionalProperties": _check_unless_long("maxProperties", _check_further_members),
    },
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


@cache
def fast_validator(name: str, is_closed: bool = False) -> jsonschema_rs.Draft202012Validator:
    """Return the validator that decides whether a body is valid.

    A closed one accepts no unknown members.
    """
    schemas = {stem: _close(schema) if is_closed else schema for stem, schema in ALL.items()}
    registry = jsonschema_rs.Registry(
        [(f"{stem}.json", schema) for stem, schema in schemas.items()]
    )
    return jsonschema_rs.Draft202012Validator(
        schemas[name],
        registry=registry,
        validate_formats=True,
        formats={"date": lambda text: FORMATS.conforms(text, "date")},
    )


def has_only_known(name: str, body: Any) -> bool:
    """Return whether a body is valid and has no unknown members, as nearly all bodies."""
    return fast_validator(name, is_closed=True).is_valid(body)


def _close(part: object) -> Any:
    """Return a part of a schema in which no object accepts unknown members."""
    if isinstance(part, list):
        return [_close(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _close(value) for name, value in part.items()}
    if "properties" in part and "object" in part.get("type", ()):
        closed.setdefault("additionalProperties", False)
    return closed


@cache
def careful_validator(name: str) -> Validator:
    """Return the validator that finds the violations of an invalid body, but no unknown members."""
    return _Careful(ALL[name], registry=REGISTRY, format_checker=FORMATS)


@cache
def body_shape(name: str) -> members.Shape:
    """Return the known members of the objects of a schema's bodies."""
    return members.make_shape(REGISTRY.resolver(f"{name}.json"), ALL[name])


def find_violations(name: str, body: object) -> list[Violation]:
    """Return the violations of the schema `name` in a body, at most MAX_VIOLATIONS.

    A member of an open object whose name resembles a known one is a violation.
    """
    if has_only_known(name, body):
        return []
    found: dict[tuple[str, str], Violation] = {}
    for path, rule, message in _find_all(name, body):
        found.setdefault((path, rule), violation(path, rule, message))
        if len(found) == MAX_VIOLATIONS:
            break
    return list(found.values())


def _find_all(name: str, body: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (path, rule, message) of each violation."""
    if not fast_validator(name).is_valid(body):
        for error in careful_validator(name).iter_errors(body):
            yield from _describe(error)
    yield from _describe_unknown(members.find_unknown(body, body_shape(name)))


def _describe_unknown(found: Iterable[members.Unknown]) -> Iterator[tuple[str, str, str]]:
    """Yield (path, rule, message) of unknown members.

    Those of an open object are violations if they resemble a known one or are too many.
    """
    names: set[str] = set()
    for unknown in found:
        judged = unknown.names
        if not unknown.is_closed:
            if len(judged) > members.MOST_UNKNOWN:
                yield unknown.path, "maxProperties", MANY_UNKNOWN
            names.update(judged)
            judged = judged[: members.MOST_COMPARED]
            if len(names) > members.MOST_NAMES:
                yield "", "maxProperties", MANY_NAMES
                return
        for name in judged:
            if unknown.is_closed or members.find_similar(name, unknown.known):
                message = describe_unknown("member", name, unknown.known)
                yield unknown.point_to(name), "unknown", message


def find_stored_only(name: str, body: object) -> list[dict[str, str]]:
    """Return a warning, {path, message}, for each member that is stored and has no effect.

    `body` is valid. Unknown members of closed objects are left out. At most MAX_VIOLATIONS.
    """
    stored = (
        {
            "path": unknown.point_to(member),
            "message": f"{member[: members.LONGEST_NAME]} is not a known member: "
            "it is stored, and not sent to the portal.",
        }
        for unknown in members.find_unknown(body, body_shape(name))
        for member in unknown.names
        if not unknown.is_closed
    )
    return list(islice(stored, MAX_VIOLATIONS))


def find_removed(stored: JsonMapping, changes: JsonMapping) -> list[dict[str, str]]:
    """Return a warning, {path, message}, for each member that a change removes by omission.

    An object in `changes` replaces the stored object of its name as a whole. Arrays are not
    compared. At most MAX_VIOLATIONS.
    """
    removed = (
        {
            "path": path,
            "message": f"{name[: members.LONGEST_NAME]} was removed, "
            f"because the update replaces {replaced} as a whole.",
        }
        for replaced, new in changes.items()
        for path, name in _find_missing(f"/{replaced}", stored.get(replaced), new)
    )
    return list(islice(removed, MAX_VIOLATIONS))


def _find_missing(path: str, old: object, new: object) -> Iterator[tuple[str, str]]:
    """Yield (JSON Pointer, name) of the members of `old` at any depth that `new` does not have."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    for name, value in cast(JsonObject, old).items():
        place = f"{path}/{json_codec.escape_pointer(name)}"
        if name in new:
            yield from _find_missing(place, value, new[name])
        elif value is not None:
            yield place, name


def _describe(error: ValidationError) -> Iterable[tuple[str, str, str]]:
    """Return (path, rule, message) of each violation in a schema error.

    The messages are ours, since those of jsonschema quote Python values.
    """
    path = json_codec.make_pointer(error.absolute_path)
    rule, limit = str(error.validator), cast(Any, error.validator_value)
    body = cast(JsonObject, error.instance)
    if rule == "required":
        missing = [name for name in limit if name not in body]
        return [(f"{path}/{name}", "required", f"{name} is required.") for name in missing]
    return [(path, rule, f"{_subject(error)} {_describe_rule(rule, limit)}.")]


def _subject(error: ValidationError) -> str:
    """Return the name of the part of the body that a message is about."""
    parts = [part for part in error.absolute_path if isinstance(part, str)]
    if not parts:
        return "The request body"
    if "propertyNames" in error.absolute_schema_path:
        return f"A name in {parts[-1]}"
    last = error.absolute_path[-1]
    return parts[-1] if isinstance(last, str) else f"An entry of {parts[-1]}"


#: Messages about a member: for types, patterns and the values of other keywords.
_TEXTS: dict[str, dict[str, str]] = json_codec.load_data(__file__)
#: Pattern of a schema -> message for a text that does not match it.
PATTERNS = _TEXTS["patterns"]


def _type_names(types: str | list[str]) -> str:
    return " or ".join(
        _TEXTS["types"][name] for name in ([types] if isinstance(types, str) else types)
    )


#: Keyword -> function from its value to the message after the member's name. Other keywords have
#: a message with the value.
WORDINGS: dict[str, Callable[[Any], str]] = {
    "type": lambda types: f"must be {_type_names(types)}",
    "enum": lambda values: "must be one of " + ", ".join(map(str, values)),
    "pattern": lambda pattern: PATTERNS.get(
        pattern, "must be a date and time, like 2026-01-31T09:30:00Z"
    ),
    "oneOf": lambda forms: (
        "must have exactly one of " + " and ".join(form["required"][0] for form in forms)
    ),
    "not": lambda form: "must not have both " + " and ".join(form["required"]),
    "minItems": lambda limit: f"must have at least {limit} entr{'y' if limit == 1 else 'ies'}",
}


def _describe_rule(rule: str, limit: object) -> str:
    if (rule, limit) == ("minLength", 1):
        return "must not be empty"
    describe = WORDINGS.get(rule) or _TEXTS["wordings"].get(rule, "is not valid").format
    return describe(limit)


def describe_unknown(noun: str, name: str, known: Collection[str]) -> str:
    """Return the message for an unknown name, with the most similar of the known ones."""
    similar = members.find_similar(name, frozenset(known)) or next(
        iter(get_close_matches(name[: members.LONGEST_NAME], known, 1)), None
    )
    hint = f" Did you mean {similar}?" if similar else ""
    return f"{name[: members.LONGEST_NAME]} is not a known {noun}.{hint}"
