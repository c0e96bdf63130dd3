"""The typed rows of the submission flows have the columns of their statements."""

from datetime import datetime
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import asyncpg
import pytest

from service.db.statements import sql
from service.submission import store
from service.submission.following import cancel, unknown_outcomes
from service.submission.foreign_uuids import RecordedRow
from service.submission.machine import comparison_rules
from service.submission.machine.types import Sighting, Submission, SubmittedDocument
from service.submission.sending import send

ROWS: dict[str, type] = {
    "cancellation_get": cancel.CancellationRow,
    "comparison_attempts": comparison_rules.Attempt,
    "comparison_basis": comparison_rules.BasisRow,
    "comparison_expected": comparison_rules.ExpectedRow,
    "submission_contents": store.ContentRow,
    "submissions_unsent": send.UnsentRow,
    "submitted_document_latest": cancel.LatestRow,
    "unknown_submissions": unknown_outcomes.UnknownRow,
    "uuids_recorded": RecordedRow,
}
#: Statement -> the type that is made of a row, and its columns that are no members.
PARTS: dict[str, tuple[type, set[str]]] = {
    "sightings_of": (Sighting, {"submission_id"}),
    "submission_claim_batch": (Submission, {"id", "fence", "last_error"}),
    "submission_documents": (SubmittedDocument, {"submission_id"}),
    "submission_get": (Submission, {"id", "fence", "last_error"}),
}
#: Type of PostgreSQL -> the type that asyncpg returns.
TYPES = {
    "bool": bool,
    "bytea": bytes,
    "int2": int,
    "int4": int,
    "int8": int,
    "text": str,
    "text[]": list[str],
    "timestamptz": datetime,
}


def get_plain_type(hint: Any) -> Any:
    """Return the type of a column without None, and str for a literal type."""
    (plain,) = set(get_args(hint) if NoneType in get_args(hint) else (hint,)) - {NoneType}
    return str if get_origin(plain) is Literal else plain


async def get_columns(owner: asyncpg.Connection, name: str) -> dict[str, Any]:
    """Return {column: its type} of a statement."""
    statement = await owner.prepare(sql.by_name[name].query)
    return {column.name: TYPES[column.type.name] for column in statement.get_attributes()}


@pytest.mark.parametrize("name", ROWS)
async def test_a_typed_row_has_the_columns_of_its_statement(
    name: str, owner: asyncpg.Connection
) -> None:
    hints = get_type_hints(ROWS[name])
    columns = await get_columns(owner, name)
    assert columns == {member: get_plain_type(hint) for member, hint in hints.items()}


@pytest.mark.parametrize("name", PARTS)
async def test_a_type_has_the_columns_of_its_statement(
    name: str, owner: asyncpg.Connection
) -> None:
    kind, others = PARTS[name]
    hints, columns = get_type_hints(kind), await get_columns(owner, name)
    assert columns.keys() - hints.keys() == others
    for column in columns.keys() - others:
        assert columns[column] == get_plain_type(hints[column])
