"""The component schemas of the OpenAPI description, in a form that client generators accept.

The schema files validate requests and use all of JSON Schema. Generators understand less, so the
description says the same in a simpler form:

- A component is an object, or a definition with an enum. Other definitions are written where they
  are used, and an object within an object gets a name.
- A schema is flat: what it refers to and combines is merged into it. `$ref` has no siblings.
- Each schema has a type. A value that can be null is `anyOf` a component and null.
- Conditions between members are left out: the descriptions of the members name them.
"""

import re
from collections.abc import Mapping
from typing import Any

from service.json_types import Json, JsonObject

PREFIX = "#/components/schemas/"
#: Files whose definitions keep their names; definitions of other files get the file's as a prefix.
SHARED = {"common", "records"}
#: Keywords that describe a place. A reference with such siblings still refers to a component.
ANNOTATIONS = {"description", "default", "examples"}
UNCHANGED = {"const", "enum", "default", "examples"}
#: Keywords that only the validation uses.
CONDITIONAL = {"$comment", "if", "then", "oneOf"}
NULL = {"type": "null"}
LARGEST_INT32 = 2**31 - 1
PLAIN: JsonObject = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None}
TYPES = {bool: "boolean", int: "integer", str: "string", type(None): "null"}


def component_name(stem: str) -> str:
    """Return the name of a component: InvoiceCreate for invoice_create."""
    return "".join(part[:1].upper() + part[1:] for part in stem.split("_"))


def refer_to(component: str) -> JsonObject:
    return {"$ref": f"{PREFIX}{component}"}


class Components:
    """The components that a description refers to. Each is described when it is first used."""

    def __init__(self, files: Mapping[str, JsonObject]) -> None:
        """`files` maps file stems to schemas. Raises ValueError for two schemas of one name."""
        self._sources = _read_sources(files)
        self._found: dict[str, JsonObject] = {}
        self._wholes: dict[str, JsonObject] = {}

    @property
    def described(self) -> dict[str, JsonObject]:
        """The components that were used so far, by name."""
        return dict(sorted(self._found.items()))

    def describe(self, schema: JsonObject, name: str = "") -> JsonObject:
        """Return the description of a schema. `name` begins the names of objects within it."""
        own = {keyword: part for keyword, part in schema.items() if keyword != "$ref"}
        if len(own) < len(schema) and own.keys() <= ANNOTATIONS:
            return self._describe_reference(schema["$ref"], own)
        whole = self._merge(schema)
        return self._define(name, whole) if _is_object(whole) else self._describe_whole(whole, name)

    def resolve(self, schema: JsonObject) -> JsonObject:
        """Return the component that a described schema refers to, or the schema itself."""
        name = schema.get("$ref", "").removeprefix(PREFIX)
        return self._found[name] if name else schema

    def make_example(self, schema: JsonObject) -> Any:
        """Return the first example of a described schema, or one made of those of its parts.

        It leaves out optional members.
        """
        if "examples" in schema:
            return schema["examples"][0]
        if "$ref" in schema:
            return self.make_example(self.resolve(schema))
        if "enum" in schema:
            return schema["enum"][0]
        for combined in ("allOf", "anyOf"):
            if combined in schema:
                return self.make_example(schema[combined][0])
        kind = _types_of(schema)[0]
        if kind == "object":
            members = schema.get("properties", {})
            return {name: self.make_example(members[name]) for name in schema.get("required", ())}
        return [self.make_example(schema["items"])] if kind == "array" else PLAIN[kind]

    def _describe_reference(self, reference: str, own: JsonObject) -> JsonObject:
        name, source = self._find(reference)
        if source.keys() <= {"$ref", *ANNOTATIONS}:
            return self.describe({**source, **own})
        whole = self._merge(source)
        if not _is_object(whole) and "enum" not in whole:
            return self._describe_whole({**whole, **own}, name)
        place = self._define(name, whole)
        return {**({"allOf": [place]} if "$ref" in place else place), **own} if own else place

    def _define(self, name: str, whole: JsonObject) -> JsonObject:
        """Return the reference to a component, or to null. Raises ValueError for a name in use."""
        if self._wholes.setdefault(name, whole) != whole:
            raise ValueError(f"Two schemas would be the component {name}.")
        types = _types_of(whole)
        if name not in self._found:
            self._found[name] = {}  # an object can contain itself
            kind = next(kind for kind in types if kind != "null")
            self._found[name] = self._describe_whole({**whole, "type": kind}, name)
        return {"anyOf": [refer_to(name), NULL]} if "null" in types else refer_to(name)

    def _describe_whole(self, whole: JsonObject, name: str) -> JsonObject:
        """Return the description of a merged schema at its own place."""
        described: JsonObject = {"type": None} if "anyOf" not in whole else {}
        for keyword, part in whole.items():
            if keyword == "properties":
                part = {
                    member: self.describe(each, f"{name}{component_name(member)}")
                    for member, each in part.items()
                }
            elif keyword in ("items", "additionalProperties") and not isinstance(part, bool):
                part = self.describe(part, f"{name}Item")
            described[keyword] = part
        if "anyOf" in whole:
            return self._describe_alternatives(described, name)
        types = _types_of(whole)
        described["type"] = types if len(types) > 1 else types[0]
        if "integer" in types and whole.get("maximum", 2**63) > LARGEST_INT32:
            described.setdefault("format", "int64")
        if isinstance(whole.get("const"), bool):
            del described["const"]  # generators make an enum of strings of it
        return described

    def _describe_alternatives(self, schema: JsonObject, name: str) -> JsonObject:
        """Return a schema with anyOf. A plain type or null becomes one schema of both types."""
        parts: list[JsonObject] = []
        for alternative in schema.pop("anyOf"):
            part = self.describe(alternative, name)
            nested = part["anyOf"] if part.keys() == {"anyOf"} else [part]
            parts += [each for each in nested if each not in parts]
        others = [part for part in parts if part != NULL]
        if len(others) == 1 and len(parts) == 2 and isinstance(others[0].get("type"), str):
            return {**others[0], "type": [others[0]["type"], "null"], **schema}
        return {**schema, "anyOf": parts}

    def _find(self, reference: str) -> tuple[str, JsonObject]:
        """Return the name and the source of a referenced schema, which may be a member's."""
        first, *rest = reference.removeprefix(PREFIX).split("/")
        part = self._sources[first]
        for step in rest:
            part = part[step]
        return component_name("_".join([first, *rest[1::2]])), part

    def _merge(self, schema: JsonObject) -> JsonObject:
        """Return a schema merged with those that it refers to and combines."""
        combined = [self._find(schema["$ref"])[1]] if "$ref" in schema else []
        combined += schema.get("allOf", ())
        own = {key: part for key, part in schema.items() if key not in ("$ref", "allOf")}
        whole: JsonObject = {}
        for part in (*map(self._merge, combined), own):
            whole = {**whole, **part, **_join_members(whole, part)}
        return whole


def _read_sources(files: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Return {name: schema} of all files and their definitions, with references to components."""
    sources: dict[str, JsonObject] = {}
    for stem, schema in files.items():
        found = {
            _definition_name(stem, name): definition
            for name, definition in schema.get("$defs", {}).items()
        }
        if stem not in SHARED:
            found[component_name(stem)] = {
                key: value for key, value in schema.items() if key != "$defs"
            }
        if taken := found.keys() & sources.keys():
            raise ValueError(f"Two schemas would be the component {min(taken)}.")
        sources |= {name: _rewrite(each, stem) for name, each in found.items()}
    return sources


def _definition_name(stem: str, name: str) -> str:
    return component_name(name if stem in SHARED else f"{stem}_{name}")


def _rewrite(part: Json, stem: str) -> Any:
    """Return a part of the schema file `stem` with references to components."""
    if isinstance(part, list):
        return [_rewrite(entry, stem) for entry in part]
    if not isinstance(part, dict):
        return part
    return {
        key: value
        if key in UNCHANGED
        else _rewrite_reference(str(value), stem)
        if key == "$ref"
        else _rewrite(value, stem)
        for key, value in part.items()
        if key not in CONDITIONAL
    }


def _rewrite_reference(reference: str, stem: str) -> str:
    file, _, pointer = reference.partition("#")
    stem = file.removesuffix(".json") or stem
    definition = re.fullmatch(r"/\$defs/([^/]+)(.*)", pointer)
    if definition:
        return f"{PREFIX}{_definition_name(stem, definition[1])}{definition[2]}"
    return f"{PREFIX}{component_name(stem)}{pointer}"


def _is_object(whole: JsonObject) -> bool:
    """Return whether a merged schema is an object with known members."""
    return "object" in _types_of(whole) and (
        "properties" in whole or whole.get("additionalProperties") is False
    )


def _types_of(whole: JsonObject) -> list[str]:
    """Return the types that a merged schema accepts, also if only its values say so."""
    if "type" in whole:
        return [whole["type"]] if isinstance(whole["type"], str) else whole["type"]
    values = [whole["const"]] if "const" in whole else whole.get("enum", ())
    return list(dict.fromkeys(TYPES[type(value)] for value in values))


def _join_members(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return the members, and the names of the required ones, of two schemas that are combined."""
    joined: JsonObject = {}
    if "properties" in first and "properties" in second:
        joined["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return joined
