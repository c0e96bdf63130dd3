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
from service.submission.sending import batch, send

ROWS: dict[str, type] = {
    "cancellation_get": cancel.CancellationRow,
    "comparison_attempts": comparison_rules.AttemptRow,
    "comparison_basis": comparison_rules.BasisRow,
    "comparison_expected": comparison_rules.ExpectedRow,
    "sightings_of": store.SightingRow,
    "submission_claim_batch": store.SubmissionRow,
    "submission_contents": store.ContentRow,
    "submission_documents": store.DocumentRow,
    "submission_get": store.SubmissionRow,
    "submission_request": send.RequestRow,
    "submissions_unsent": batch.UnsentRow,
    "submitted_document_latest": cancel.LatestRow,
    "unknown_known": unknown_outcomes.UnknownRow,
    "unknown_left": unknown_outcomes.LeftRow,
    "unknown_many_documents": unknown_outcomes.NumberedRow,
    "unknown_submissions": unknown_outcomes.DueRow,
    "uuids_recorded": RecordedRow,
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


@pytest.mark.parametrize("name", ROWS)
async def test_a_typed_row_has_the_columns_of_its_statement(
    name: str, owner: asyncpg.Connection
) -> None:
    statement = await owner.prepare(sql.by_name[name].query)
    columns = {column.name: TYPES[column.type.name] for column in statement.get_attributes()}
    hints = get_type_hints(ROWS[name])
    assert columns == {member: get_plain_type(hint) for member, hint in hints.items()}
