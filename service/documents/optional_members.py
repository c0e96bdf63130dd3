"""Optional members of documents that no statement reads, in their forms.

They are stored as one text: the members of a JSON object with the names of a record. Bodies and
exports have the names of the schema.
"""

from collections.abc import Iterable
from functools import lru_cache

from service import json_codec, schema
from service.documents.kind import NOTE, DocumentKind
from service.json_types import JsonMapping, JsonObject, Row

_NOT_OF_NOTES = "invoiceLevelAllowanceCharge"
#: Name in a record -> name in a body.
NAMES = {
    schema.name_in_record(name): name
    for name in (
        _NOT_OF_NOTES,
        *schema.ALL["common"]["$defs"]["document_members"]["properties"],
    )
}


def write_members(kind: DocumentKind, body: JsonMapping) -> str:
    """Return all optional members of a body as they are stored. Absent ones are null."""
    members = {
        recorded: body.get(name)
        for recorded, name in NAMES.items()
        if kind is not NOTE or name != _NOT_OF_NOTES
    }
    return json_codec.encode_plain(members).decode()[1:-1]


def read_members(text: str) -> JsonObject:
    """Return stored optional members by their names in a record."""
    return json_codec.loads_own(f"{{{text}}}")


def read_stored_body(text: str) -> JsonObject:
    """Return the members of a stored document in the form of a body, without null ones.

    `text` is its JSON, in which the optional members have the names of a record.
    """
    stored = json_codec.loads_own(text)
    return {NAMES.get(name, name): member for name, member in stored.items() if member is not None}


def join_exports(rows: Iterable[Row]) -> str:
    """Return the texts of exports with their optional members, each after a comma."""
    return "".join(_start_export(row["optional_members"]) + row["export"] for row in rows)


@lru_cache(1000)
def _start_export(text: str) -> str:
    """Return a comma and the start of an export, which has the members in a text."""
    found = read_members(text)
    return f",{json_codec.dumps({NAMES.get(name, name): found[name] for name in found})[:-1]},"
