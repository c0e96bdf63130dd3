"""Optional members of documents that no statement reads, in their forms.

They have a column together, with the names of a record. Bodies and exports have the names of the
schema.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from asyncpg import Record

from service import json_codec, schema
from service.documents.kind import NOTE, DocumentKind

_NOT_OF_NOTES = "invoiceLevelAllowanceCharge"
#: Name in a record -> name in a body.
NAMES = {
    schema.name_in_record(name): name
    for name in (
        _NOT_OF_NOTES,
        *schema.ALL["common"]["$defs"]["document_members"]["properties"],
    )
}


def pick_members(kind: DocumentKind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return all optional members of a body with the names of a record. Absent ones are None."""
    return {
        recorded: body.get(name)
        for recorded, name in NAMES.items()
        if kind is not NOTE or name != _NOT_OF_NOTES
    }


def read_stored_body(text: str) -> dict[str, Any]:
    """Return the members of a stored document in the form of a body, without null ones.

    `text` is its JSON, in which the optional members have the names of a record.
    """
    stored = json_codec.loads(text.encode())
    return {NAMES.get(name, name): member for name, member in stored.items() if member is not None}


def join_exports(rows: Iterable[Record]) -> str:
    """Return the texts of exports with their optional members, separated by commas."""
    parts = [
        part
        for row in rows
        for part in (row["export"][:-1], _make_export_end(row["optional_members"]))
    ]
    return "".join(parts)[:-1]


@lru_cache(1000)
def _make_export_end(text: str) -> str:
    """Return the members in a text with the names of an export, between commas."""
    found = json_codec.loads_own(text)
    named = {NAMES[name]: member for name, member in found.items()}
    return f",{json_codec.dumps(named)[1:]},"
