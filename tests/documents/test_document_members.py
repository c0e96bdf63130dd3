"""Optional members of invoices and notes: payment, delivery, billing period and references."""

import json
from typing import Any

import asyncpg
import pytest

from service import json_codec, schema
from service.documents.kind import KINDS
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice
from tests.api_requests import create_record, expect, list_paths, request_json
from tests.conftest import Client
from tests.documents.sources import EVERYTHING
from tests.harness.bodies import invoice, note

#: Name in a body -> name in a record.
NAMES = {
    name: schema.name_in_record(name)
    for name in schema.ALL["common"]["$defs"]["document_members"]["properties"]
}
MEMBERS = json.loads(json_codec.dumps({name: EVERYTHING[name] for name in NAMES}))
MEMBERS["prepayment"]["amount"] = 10.5  # less than a note of one line


def get_members(found: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a record under their request names."""
    return {member: found[name] for member, name in NAMES.items()}


@pytest.fixture(params=["invoice", "note"])
async def place(request: pytest.FixtureRequest, api: Client) -> str:
    """Return the path of a new record without the members."""
    if request.param == "invoice":
        return f"/api/invoices/{await create_invoice(api)}"
    made = await create_record(
        api, f"/api/invoices/{await create_valid_invoice(api)}/adjustment-note", **note()
    )
    return f"/api/adjustment-notes/{made['id']}"


async def read(api: Client, place: str) -> dict[str, Any]:
    return get_members((await request_json(api, "GET", place))[1])


async def put(api: Client, place: str, **changes: Any) -> tuple[int, Any]:
    return await request_json(api, "PUT", place, json=changes)


async def test_invoice_and_note_are_created_with_optional_members(api: Client) -> None:
    invoice_id = await create_valid_invoice(api, **MEMBERS)
    assert get_members(await get_invoice(api, invoice_id)) == MEMBERS
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    made = await create_record(api, path, **note(**MEMBERS))
    assert await read(api, f"/api/adjustment-notes/{made['id']}") == MEMBERS


async def test_exports_have_the_optional_members(api: Client, place: str) -> None:
    await put(api, place, **MEMBERS)
    export = (await request_json(api, "GET", f"{place}/export"))[1]
    assert {member: export[member] for member in NAMES} == MEMBERS


async def list_record_members(owner: asyncpg.Connection) -> set[str]:
    """Return the names of the members of records that are not optional."""
    names = await owner.fetch(
        """
        select distinct column_name::text from information_schema.columns
         where table_name = any ($1)
        """,
        [f"{kind.name}_records" for kind in KINDS],
    )
    return {"invoice_ids", *(name for (name,) in names)}


async def test_no_optional_member_replaces_one_of_the_record(
    api: Client, owner: asyncpg.Connection
) -> None:
    """Neither by a request, nor by a statement."""
    document_id = await create_invoice(api)
    found = await get_invoice(api, document_id)
    for name in sorted(await list_record_members(owner)):
        if name not in schema.ALL["invoice_update"]["properties"]:
            refused, _ = await put(api, f"/api/invoices/{document_id}", **{name: "1"})
            assert refused == 422, name
        with pytest.raises(asyncpg.CheckViolationError, match="documents_optional_members"):
            await owner.execute(
                "update documents set optional_members = to_json($1::text) || ':1' where id = $2",
                name,
                document_id,
            )
    for text in ("", '"terms":1,"id":2'):
        with pytest.raises(asyncpg.CheckViolationError, match="documents_optional_members"):
            await owner.execute("update documents set optional_members = $1", text)
    assert await get_invoice(api, document_id) == found


async def test_optional_members_are_replaced_and_removed_independently(
    api: Client, place: str
) -> None:
    assert await read(api, place) == dict.fromkeys(NAMES)
    assert (await put(api, place, **MEMBERS))[0] == 200
    assert await read(api, place) == MEMBERS
    assert (await put(api, place, payment={"mode": "01"}))[0] == 200
    assert await read(api, place) == {**MEMBERS, "payment": {"mode": "01"}}
    assert (await put(api, place, delivery=None))[0] == 200
    assert await read(api, place) == {**MEMBERS, "payment": {"mode": "01"}, "delivery": None}


@pytest.mark.parametrize(
    "changes, path, words",
    [
        (
            {"payment": {"mode": "3"}},
            "/payment/mode",
            'table of payment modes; the nearest code is "03" (Bank Transfer)',
        ),
        ({"payment": {"mode": "Cash"}}, "/payment/mode", 'the nearest code is "01"'),
        ({"payment": {"bankAccount": "8001"}}, "/payment/mode", "mode is required."),
        ({"delivery": {"address": {"country": "CN"}}}, "/delivery/address/country", '"CHN"'),
        ({"delivery": {"address": {"state": "Johor"}}}, "/delivery/address/state", '"01"'),
        (
            {"delivery": {"registration": {"type": "IC"}}},
            "/delivery/registration/type",
            "registration types",
        ),
        (
            {"billingPeriod": {"start": "2026-02-29"}},
            "/billingPeriod/start",
            "a day of the calendar",
        ),
        ({"billingPeriod": {"end": "2026-13-01"}}, "/billingPeriod/end", "a day of the calendar"),
        (
            {"billingPeriod": {"start": "2026-03-02", "end": "2026-03-01"}},
            "/billingPeriod/end",
            "not be before its start",
        ),
        (
            {"billingPeriod": {"frequency": "Fortnightly"}},
            "/billingPeriod/frequency",
            "one of Daily, Weekly",
        ),
        (
            {"prepayment": {"amount": 1, "date": "2026-02-29"}},
            "/prepayment/date",
            "a day of the calendar",
        ),
        (
            {"prepayment": {"amount": 1, "date": "2026-02-28", "time": "24:00:00Z"}},
            "/prepayment/time",
            "a time in UTC, like 04:00:00Z",
        ),
        (
            {"prepayment": {"amount": 10**6}},
            "/prepayment/amount",
            "exceeds the amount of the document, ",
        ),
        (
            {"prepayment": {"amount": 1, "referense": "DEP-771"}},
            "/prepayment/referense",
            "reference",
        ),
        ({"payableRoundingAmount": 0.005}, "/payableRoundingAmount", "at most 2 decimals"),
        ({"payableRoundingAmount": -1.5}, "/payableRoundingAmount", "at least -1"),
        (
            {"references": [{"type": "K2", "id": "1" * 500}] * 2},
            "/references",
            "at most 1000 characters",
        ),
        (
            {"references": [{"type": "INCOTERMS", "id": "CIF-1"}]},
            "/references/0/id",
            "at most 3 characters",
        ),
    ],
)
async def test_invalid_optional_member_is_rejected_with_its_path(
    api: Client, place: str, changes: dict[str, Any], path: str, words: str
) -> None:
    status, body = await put(api, place, **changes)
    assert status == 422
    (violation,) = body["errors"]
    assert violation["path"] == path and words in violation["message"]


async def test_creation_validates_optional_members(api: Client) -> None:
    body = invoice(billingPeriod={"start": "2026-02-29"}, payment={"mode": "9"})
    answer = await expect(api, 422, "POST", "/api/invoices", json=body)
    assert set(list_paths(answer)) == {
        "/billingPeriod/start",
        "/payment/mode",
    }


async def test_references_of_the_maximum_length_are_accepted(api: Client) -> None:
    references = [{"type": "K2", "id": "1" * 500}, {"type": "K2", "id": "2" * 499}]
    assert (
        get_members(await get_invoice(api, await create_invoice(api, references=references)))[
            "references"
        ]
        == references
    )
