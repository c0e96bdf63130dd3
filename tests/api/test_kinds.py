"""The kinds of documents stay apart in the table that they share."""

from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from service import json_codec
from service.db.statements import sql
from tests.api.test_notes import create_valid_note
from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_requests import expect, list_routes, request_json
from tests.conftest import Client, Company, StartService
from tests.harness.bodies import note
from tests.harness.environments import GENEROUS

PLACES = ("/api/invoices", "/api/adjustment-notes", "/api/consolidated-invoices")
UNKNOWN = 10**9


def list_requests(api: Client, ids: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    """Yield each route of a document, with the id of a document of each other kind."""
    for method, path in list_routes(api, "GET", "PUT", "POST", "DELETE"):
        place = path.partition("/{id}")[0]
        if place in PLACES and "{id}" in path:
            for other in PLACES:
                if other != place:
                    yield method, path, ids[other]


async def send(api: Client, method: str, path: str, document_id: int) -> tuple[int, Any]:
    place = path.format(id=document_id, submitted_document_id=1, link_id=1)
    body = None
    if method in ("PUT", "POST"):
        body = note() if path.endswith("/adjustment-note") else {}
    status, answer = await request_json(api, method, place, json=body)
    return status, answer


async def test_an_id_of_another_kind_is_as_unknown_as_any(start: StartService) -> None:
    api = await start(**GENEROUS)
    ids = await create_one_of_each(api)
    asked = list(list_requests(api, ids))
    assert len(asked) > 60
    for method, path, other in asked:
        answer = await send(api, method, path, other)
        assert answer == await send(api, method, path, UNKNOWN), (method, path)
        assert answer[0] == 404, (method, path)
    for place in PLACES:
        await expect(api, 200, "GET", f"{place}/{ids[place]}")


@pytest.mark.parametrize("members", ["$1, null", "null, $1"])
async def test_a_reference_to_another_kind_is_not_stored(
    api: Client, owner: asyncpg.Connection, members: str
) -> None:
    note_id = await create_valid_note(api, await create_valid_invoice(api))
    with pytest.raises(asyncpg.ForeignKeyViolationError, match="another kind"):
        await owner.execute(
            f"update documents set (invoice_id, consolidated_invoice_id) = ({members})"
            " where id = $1::bigint",
            note_id,
        )


@pytest.mark.parametrize("of_type", ["CREDIT_NOTE", "CONSOLIDATED_INVOICE"])
async def test_a_type_of_another_kind_is_not_stored(
    api: Client, owner: asyncpg.Connection, of_type: str
) -> None:
    invoice_id = await create_invoice(api)
    with pytest.raises(asyncpg.CheckViolationError, match="documents_columns_by_kind"):
        await owner.execute("update documents set type = $1 where id = $2", of_type, invoice_id)


async def test_a_document_and_its_note_change_in_one_statement(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    """The status of the invoice and its adjustment by the note are both stored."""
    invoice_id = await create_valid_invoice(api)
    note_id = await create_valid_note(api, invoice_id)
    ids = [invoice_id, note_id]
    before: Any = await owner.fetchval(
        "select adjusted_by from document_states where id = $1", invoice_id
    )
    await owner.execute(
        "update document_states set status = 'Submitted', adjusted_by = 0 where id = any ($1)", ids
    )
    rows = await owner.fetch(
        "update submitted_documents set status = 'Submitted' where document_id = any ($1)"
        " returning id",
        ids,
    )
    changes = [
        {"id": row["id"], "expected": ["Submitted"], "next": "Valid", "subject_status": "Valid"}
        for row in rows
    ]
    text = json_codec.dumps(changes)
    moved = await sql.submitted_documents_move(owner, company_id=company.id, changes=text)
    assert {row["kind"] for row in moved} == {"invoice", "adjustment_note"}
    stored = await owner.fetch(
        "select status, adjusted_by from document_states where id = any ($1) order by id", ids
    )
    assert before < 0
    assert [tuple(row) for row in stored] == [("Valid", before), ("Valid", 0)]
