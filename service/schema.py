"""Request bodies against the JSON Schema files in schemas/: one fast validator says yes, one careful one words the no."""

import difflib
import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import jsonschema_rs
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from service import json_codec
from service.errors import violation

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"
MAX_FAULTS = 50
LONGEST_NAME = 60  # of a member that is likened to those that are known, and of what is quoted


def load(folder=SCHEMAS):
    """{file stem: schema} of every file, numbers as Decimal.

    Without $schema, at the sight of which jsonschema would go on with its own validator in place of ours.
    """
    files = {
        path.stem: json_codec.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))
    }
    for schema in files.values():
        del schema["$schema"]
    return files


ALL = load()
#: {name of a body's schema: {title: body}}, for those who read the API's description.
EXAMPLES = json_codec.loads((SCHEMAS / "examples" / "requests.json").read_bytes())
REGISTRY = Registry().with_resources(
    (f"{name}.json", DRAFT202012.create_resource(schema)) for name, schema in ALL.items()
)


def _is_integer(checker, value):
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, Decimal) and value == value.to_integral_value()
    )


def _pattern(checker, pattern, value, schema):
    """Patterns are left to the fast validator: Python means something else by $ and by \\S."""
    if checker.is_type(value, "string") and not _fast_pattern(pattern).is_valid(value):
        yield ValidationError(f"does not match {pattern}")


def _items(checker, items, value, schema):
    """Of a list that is too long only as much as may be there is looked at: a long walk holds up every request."""
    if checker.is_type(value, "array"):
        yield from Draft202012Validator.VALIDATORS["items"](
            checker, items, value[: schema.get("maxItems")], schema
        )


def _unique(checker, is_unique, value, schema):
    """Left to the fast validator: Python's compares each entry with each."""
    if checker.is_type(value, "array") and not _fast_unique().is_valid(value):
        yield ValidationError("has entries twice")


@cache
def _fast_pattern(pattern):
    return jsonschema_rs.Draft202012Validator({"pattern": pattern})


@cache
def _fast_unique():
    return jsonschema_rs.Draft202012Validator({"uniqueItems": True})


_Careful = extend(
    Draft202012Validator,
    {"pattern": _pattern, "items": _items, "uniqueItems": _unique},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


@cache
def fast_validator(name):
    registry = jsonschema_rs.Registry([(f"{stem}.json", schema) for stem, schema in ALL.items()])
    return jsonschema_rs.Draft202012Validator(ALL[name], registry=registry)


@cache
def careful_validator(name):
    return _Careful(ALL[name], registry=REGISTRY)


def violations(name, body):
    """What in `body` breaks the schema `name`: a list of {path, rule, message}, at most 50, empty when all is well."""
    if fast_validator(name).is_valid(body):
        return []
    found = {}
    for error in careful_validator(name).iter_errors(body):
        for path, rule, message in _worded(error):
            found.setdefault((path, rule), violation(path, rule, message))
            if len(found) == MAX_FAULTS:
                return list(found.values())
    return list(found.values())


def _worded(error):
    """The faults of one schema error, in our words: its own messages print Python values.

    One by one: a body may have more unknown members than are told, and each is likened to those that are known.
    """
    path = "".join(f"/{json_codec.escape_pointer(part)}" for part in error.absolute_path)
    limit = error.validator_value
    if error.validator == "required":
        missing = [name for name in limit if name not in error.instance]
        return [(f"{path}/{name}", "required", f"{name} is required.") for name in missing]
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        return (
            (f"{path}/{json_codec.escape_pointer(name)}", "unknown", _unknown(name, known))
            for name, known in _extras(error)
        )
    wording = WORDINGS.get(error.validator, "is not as it should be")
    return [
        (
            path,
            error.validator,
            f"{_subject(error)} {wording(limit) if callable(wording) else wording}.",
        )
    ]


def _subject(error):
    parts = [part for part in error.absolute_path if isinstance(part, str)]
    if not parts:
        return "The body"
    last = error.absolute_path[-1]
    return parts[-1] if isinstance(last, str) else f"An entry of {parts[-1]}"


_TYPES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}


def _type_names(types):
    return " or ".join(_TYPES[name] for name in ([types] if isinstance(types, str) else types))


#: What a text has to look like, per pattern of common.json, in words.
PATTERNS = {
    r"\S": "must not be blank",
    r"^[A-Z0-9]{1,3}$": "must be a unit code: one to three of A-Z and 0-9",
    r"^[0-9]{5}$": "must be five digits",
    r"^[^@\s]+@[^@\s]+$": "must be an e-mail address",
    r"^(199[0-9]|2[0-9]{3})-(0[1-9]|1[0-2])$": "must be a month, like 2026-01",
    r"^[A-Za-z0-9][A-Za-z0-9 -]*$": "must be letters and digits",
    r"^[A-Za-z0-9.]+$": "must be letters, digits and points",
    r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$": "must not contain control characters or line separators",
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$": "must be a day, like 2026-01-31",
}

#: keyword -> what is wrong, after the member's name.
WORDINGS = {
    "type": lambda types: f"must be {_type_names(types)}",
    "enum": lambda values: "must be one of " + ", ".join(map(str, values)),
    "const": lambda value: f"must be {value}",
    "minimum": lambda limit: f"must be at least {limit}",
    "maximum": lambda limit: f"must be at most {limit}",
    "exclusiveMinimum": lambda limit: f"must be more than {limit}",
    "minLength": lambda limit: (
        "must not be empty" if limit == 1 else f"must have at least {limit} characters"
    ),
    "maxLength": lambda limit: f"must have at most {limit} characters",
    "minItems": lambda limit: f"must have at least {limit} entr{'y' if limit == 1 else 'ies'}",
    "maxItems": lambda limit: f"must have at most {limit} entries",
    "uniqueItems": "must not repeat an entry",
    "multipleOf": lambda step: f"must be a multiple of {step}",
    "pattern": lambda pattern: PATTERNS.get(
        pattern, "must be a date and a time, like 2026-01-31T09:30:00Z"
    ),
    "not": "must not be sent together with the rest",
    "anyOf": "is not one of the forms it may have",
    "oneOf": lambda forms: (
        "must have exactly one of " + " and ".join(form["required"][0] for form in forms)
    ),
    "minProperties": lambda limit: f"must have at least {limit} member{'' if limit == 1 else 's'}",
    "maxProperties": lambda limit: f"must have at most {limit} member{'' if limit == 1 else 's'}",
}


def _extras(error):
    """(name, nearest known name or None) of each member that the closed object does not know."""
    known = sorted(_properties(error.schema))
    for name in error.instance:
        if name not in known and not _matches_pattern(error.schema, name):
            yield name, _nearest(name, known)


def _nearest(name, known):
    return (
        next(iter(difflib.get_close_matches(name, known, 1, 0.6)), None)
        if len(name) <= LONGEST_NAME
        else None
    )


def _properties(schema):
    """The members that a closed body knows, its own and those of the schemas it refers to."""
    names = set(schema.get("properties", ()))
    if "$ref" in schema:
        names |= _properties(ALL[schema["$ref"].removesuffix(".json")])
    for part in schema.get("allOf", ()):
        names |= _properties(part)
    return names


def _matches_pattern(schema, name):
    return any(re.search(pattern, name) for pattern in schema.get("patternProperties", ()))


def _unknown(name, nearest):
    hint = f" Did you mean {nearest}?" if nearest else ""
    return f"{name[:LONGEST_NAME]} is not a member of this body.{hint}"
