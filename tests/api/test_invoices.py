"""Invoices over HTTP: create, read, update, delete, and the exact record. Spec: Invoices."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from service import json_codec, schema
from tests.api.test_notes import create_valid_note
from tests.api_invoices import (
    create_delivery,
    create_invoice,
    create_one_of_each,
    create_valid_invoice,
)
from tests.api_reads import get_invoice
from tests.api_requests import (
    INTEGRATIONS,
    PLACES,
    create_integration_records,
    expect,
    fill_path,
    list_paths,
    list_routes,
    not_found,
    open_integrations,
    place_of,
    request_json,
    submit,
)
from tests.conftest import Client, Company, StartService, make_company
from tests.harness.bodies import buyer, invoice, line, note
from tests.harness.environments import GENEROUS

TAKEN = {"path": "/code", "rule": "unique", "message": "The code has already been used this year."}
CANCEL_FIRST = (
    "A submitted {} cannot be {}, please cancel first and try again. "
    "A submitted document can only be cancelled within 72 hours after submission"
)

#: Members of the record in the order of the specification, then the service's own members.
SPECIFIED = (
    "id company_id is_submitted_to_portal is_ready invoice_code type buyer line_items "
    "final_adjusted_amount status legal_monetary_total created_at updated_at"
)
FURTHER = [
    "supplier",
    "issue_date",
    "invoice_level_allowance_charge",
    "currency_code",
    "exchange_rate",
    "consolidated_invoice_id",
    "reference",
    "metadata",
    "last_submission",
    *map(schema.name_in_record, schema.ALL["common"]["$defs"]["document_members"]["properties"]),
]


async def update(api: Client, invoice_id: int, **changes: Any) -> tuple[int, Any]:
    return await request_json(api, "PUT", f"/api/invoices/{invoice_id}", json=changes)


async def delete(api: Client, invoice_id: int) -> tuple[int, Any]:
    return await request_json(api, "DELETE", f"/api/invoices/{invoice_id}")


async def create_refused(api: Client, **changes: Any) -> dict[str, Any]:
    """Return {path: rule} of a rejected creation."""
    body = await expect(api, 422, "POST", "/api/invoices", json=invoice(**changes))
    return {error["path"]: error["rule"] for error in body["errors"]}


async def text_of(api: Client, invoice_id: int) -> str:
    async with api.get(f"/api/invoices/{invoice_id}") as response:
        return await response.text()


JSON_TYPE = {"Content-Type": "application/json"}


async def create_from_text(api: Client, text: str) -> int:
    """Create an invoice from JSON text and return its id."""
    body = await expect(api, 201, "POST", "/api/invoices", data=text.encode(), headers=JSON_TYPE)
    return body["data"]["id"]


# Create and get


async def test_record_has_the_specified_members(api: Client, company: Company) -> None:
    sent = invoice(code=7)
    found = await get_invoice(api, await create_invoice(api, **sent))
    assert sorted(found) == sorted(SPECIFIED.split() + FURTHER)
    assert found["company_id"] == company.id
    assert found["invoice_code"] == "7"
    assert found["type"] == "INVOICE" and found["status"] == "Draft"
    assert found["is_submitted_to_portal"] is False and found["is_ready"] is False
    assert found["buyer"] == sent["buyer"] and found["supplier"] is None
    assert found["line_items"] == sent["lineItems"]
    assert found["currency_code"] == "MYR" and found["exchange_rate"] is None
    assert found["consolidated_invoice_id"] is None
    assert list(found["legal_monetary_total"]) == [
        "excludingTax",
        "includingTax",
        "payableAmount",
        "netAmount",
    ]


async def test_response_has_the_json_content_type(api: Client) -> None:
    async with api.get(f"/api/invoices/{await create_invoice(api)}") as response:
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"


async def test_instants_are_utc_with_milliseconds(api: Client) -> None:
    found = await get_invoice(api, await create_invoice(api))
    for member in ("created_at", "updated_at", "issue_date"):
        assert len(found[member]) == 29
        assert found[member].endswith("+00:00")
        assert found[member][19] == "."


async def test_code_is_returned_as_a_string_of_digits(api: Client) -> None:
    for code, digits in (
        ("1", "1"),
        ("2.0", "2"),
        ("3e0", "3"),
        ("1E+3", "1000"),
        ("999999999999", "999999999999"),
    ):
        text = json.dumps(invoice(code=0)).replace('"code": 0', f'"code": {code}')
        assert (await get_invoice(api, await create_from_text(api, text)))[
            "invoice_code"
        ] == digits, code


async def test_numbers_are_returned_exactly_as_sent(api: Client) -> None:
    numbers = "0.1,0.10,1.10,3,12345678901234567890.123456789,0.00000000000000000001"
    body = invoice(
        buyer=buyer(numbers="HERE"),
        lineItems=[line(unit={"code": "KGM", "price": "P", "count": "C"})],
    )
    text = (
        json.dumps(body)
        .replace('"HERE"', f"[{numbers}]")
        .replace('"P"', "0.1")
        .replace('"C"', "19.990")
    )
    stored = await text_of(api, await create_from_text(api, text))
    assert f'"numbers":[{numbers}]' in stored
    assert '"price":0.1,' in stored or '"price":0.1}' in stored
    assert '"count":19.990' in stored


async def test_a_zero_has_no_sign(api: Client) -> None:
    text = json.dumps(invoice(lineItems=[line(unit={"code": "KGM", "price": -0.0, "count": 1})]))
    assert "-0.0" in text
    assert '"price":0.0' in await text_of(api, await create_from_text(api, text))


@pytest.mark.parametrize(
    "number, meant",
    [
        ("3.1500000000000004", "3.15"),
        ("0.30000000000000004", "0.3"),
        ("1.00000000001", "1"),
        ("0.00000000005", "0.0000000001"),
        ("0.1234567891", None),
        ("2.50000000000000000000", None),
    ],
)
async def test_the_error_of_a_binary_float_is_rejected_with_a_proposal(
    api: Client, number: str, meant: str | None
) -> None:
    for name, other in (("price", "count"), ("count", "price")):
        body = invoice(lineItems=[line(), line(unit={"code": "KGM", name: "N", other: 2})])
        text = json.dumps(body).replace('"N"', number)
        async with api.post("/api/invoices", data=text.encode(), headers=JSON_TYPE) as response:
            assert response.status == (422 if meant else 201)
            found = (await response.json()).get("errors", [])
        assert [(each["path"], each["rule"]) for each in found] == (
            [(f"/lineItems/1/unit/{name}", "decimals")] if meant else []
        )
        assert all(f"Did you mean {meant}?" in each["message"] for each in found)


async def test_invoice_with_exponent_numbers_can_be_updated_and_submitted(api: Client) -> None:
    """PostgreSQL returns the number without an exponent, and that form must be accepted again."""
    numbers = "1e20 1.5e19 -1e-20 1234567890123456789e20 1.234567890123456789e-20 0e-38 1e38"
    for number in numbers.split():
        text = json.dumps(invoice(buyer=buyer(number="HERE"))).replace('"HERE"', number)
        invoice_id = await create_from_text(api, text)
        assert (await update(api, invoice_id, isReady=True))[0] == 200, number
        assert (await submit(api, invoice_id))[0] == 200, number


async def test_additional_members_of_open_objects_are_kept(api: Client) -> None:
    extra = {"grade": {"letters": ["A", None], "sure": False}}
    person = buyer(
        **extra,
        address={**buyer()["address"], **extra},
        registration={**buyer()["registration"], **extra},
    )
    item = line(
        **extra, unit={**line()["unit"], **extra}, taxDetails=[{**line()["taxDetails"][0], **extra}]
    )
    found = await get_invoice(api, await create_invoice(api, buyer=person, lineItems=[item]))
    assert found["buyer"] == person and found["line_items"] == [item]


async def test_totals_sent_by_a_client_are_stored_but_not_used(api: Client) -> None:
    found = await get_invoice(
        api,
        await create_invoice(
            api, lineItems=[line(total=1, legal_monetary_total={"payableAmount": 1})]
        ),
    )
    assert found["line_items"][0]["total"] == 1
    assert found["legal_monetary_total"]["payableAmount"] == 104.76


# Amounts. Contract: line net = round(price x count) - discount + charge, each tax rounded.


def priced_line(
    price: float, count: int, percentage: float | None = None, **members: Any
) -> dict[str, Any]:
    taxes = [] if percentage is None else [{"taxType": "01", "taxRate": {"percentage": percentage}}]
    return line(unit={"code": "KGM", "price": price, "count": count}, taxDetails=taxes, **members)


#: (lines, allowances and charges, amount excluding tax, tax, net amount)
SUMS = (
    ([priced_line(48.5, 2, 8)], None, 97, 7.76, 97),
    ([priced_line(0.1, 3), priced_line(0.2, 3)], None, 0.9, 0, 0.9),
    ([priced_line(1.005, 1)], None, 1.01, 0, 1.01),  # rounded half up, without binary floats
    ([priced_line(2.675, 1)], None, 2.68, 0, 2.68),
    ([priced_line(0.333, 3)], None, 1, 0, 1),
    ([priced_line(1.25, 1, 10)], None, 1.25, 0.13, 1.25),
    # The tax of each line is rounded.
    ([priced_line(0.05, 1, 10), priced_line(0.05, 1, 10)], None, 0.1, 0.02, 0.1),
    ([priced_line(100, 1, 6, discount={"amount": 10})], None, 90, 5.4, 90),
    ([priced_line(100, 1, 6, discount={"rate": 12.5}, charge={"amount": 0.5})], None, 88, 5.28, 88),
    ([priced_line(0, 5, 8)], None, 0, 0, 0),
    (
        [priced_line(100, 1, 10)],
        {"allowances": [{"amount": 30}], "charges": [{"amount": 5}, {"amount": 1}]},
        76,
        10,
        100,
    ),
)


async def test_amounts_are_computed_from_the_lines(api: Client) -> None:
    for items, document, excluding, tax, net in SUMS:
        found = await get_invoice(
            api, await create_invoice(api, lineItems=items, invoiceLevelAllowanceCharge=document)
        )
        including = round(excluding + tax, 2)
        assert found["legal_monetary_total"] == {
            "excludingTax": excluding,
            "includingTax": including,
            "payableAmount": including,
            "netAmount": net,
        }, items
        assert found["final_adjusted_amount"] == including


async def test_amounts_are_numbers_with_two_places(api: Client) -> None:
    stored = await text_of(api, await create_invoice(api, lineItems=[priced_line(48.5, 2)]))
    assert '"payableAmount" : 97.00' in stored and '"final_adjusted_amount":97.00' in stored


async def test_invalid_amount_is_rejected_with_its_path(api: Client) -> None:
    per_unit = [{"taxType": "01", "taxRate": {"perUnitAmount": 1e-21}}]
    for changes, path in (
        ({"lineItems": [priced_line(1, 1, discount={"amount": 1.01})]}, "/lineItems/0/discount"),
        (
            {"invoiceLevelAllowanceCharge": {"allowances": [{"amount": 1000}]}},
            "/invoiceLevelAllowanceCharge/allowances",
        ),
        ({"lineItems": [priced_line(999999999999, 999999999999)]}, "/lineItems"),
        ({"lineItems": [priced_line(1e-21, 1)]}, "/lineItems/0/unit/price"),
        (
            {"lineItems": [line(taxDetails=per_unit)]},
            "/lineItems/0/taxDetails/0/taxRate/perUnitAmount",
        ),
    ):
        assert await create_refused(api, **changes) == {path: "amount"}, changes


# Instants and the year of a code


#: (sent, returned)
INSTANTS = (
    ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00.000+00:00"),
    ("2026-01-31T09:30:00", "2026-01-31T09:30:00.000+00:00"),
    ("2026-01-31T09:30", "2026-01-31T09:30:00.000+00:00"),
    ("2026-01-31 09:30:00z", "2026-01-31T09:30:00.000+00:00"),
    ("2026-01-31t09:30:00.5Z", "2026-01-31T09:30:00.500+00:00"),
    ("2026-01-31T09:30:00.123456789Z", "2026-01-31T09:30:00.123+00:00"),
    ("2026-01-31T09:30:00.9999Z", "2026-01-31T09:30:00.999+00:00"),
    ("2026-01-31T09:30:00+08:00", "2026-01-31T01:30:00.000+00:00"),
    ("2026-01-31T00:00:00+0800", "2026-01-30T16:00:00.000+00:00"),
    ("2024-02-29T23:59:59-11:30", "2024-03-01T11:29:59.000+00:00"),
)


async def test_instant_is_returned_in_utc(api: Client) -> None:
    for sent, stored in INSTANTS:
        assert (await get_invoice(api, await create_invoice(api, issueDateTime=sent)))[
            "issue_date"
        ] == stored, sent


async def test_instant_that_does_not_exist_is_rejected(api: Client) -> None:
    instants = (
        "2026-02-29T00:00:00Z 2026-13-01T00:00:00Z 2026-00-01T00:00:00Z 2026-01-31T24:01:00Z "
        "2026-01-31T09:60:00Z 2026-01-31T09:30:61Z 2026-01-31T09:30:00+24:00 0000-01-01T00:00:00Z "
        "0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-14:00 1066-10-14T09:00:00Z"
    )
    for sent in instants.split():
        assert await create_refused(api, issueDateTime=sent) == {"/issueDateTime": "format"}, sent


async def test_used_code_is_rejected_in_the_same_year(api: Client) -> None:
    await create_invoice(api, code=5)
    body = await expect(api, 422, "POST", "/api/invoices", json=invoice(code=5))
    assert body == {"message": TAKEN["message"], "code": "code_taken", "errors": [TAKEN]}


@pytest.mark.parametrize(
    "settings, last, first",
    [
        ({}, "2025-12-31T15:59:59Z", "2025-12-31T16:00:00Z"),
        ({"TIME_ZONE": "America/New_York"}, "2026-01-01T04:59:59Z", "2026-01-01T05:00:00Z"),
    ],
)
async def test_year_of_a_code_is_in_the_business_time_zone(
    start: StartService, settings: dict[str, str], last: str, first: str
) -> None:
    """`last` and `first` are instants of 2025 and 2026. The zone is by default Kuala Lumpur."""
    api = await start(**settings)
    await create_invoice(api, code=5, issueDateTime=first)
    found = await create_refused(api, code=5, issueDateTime="2026-06-01T00:00:00Z")
    assert found == {"/code": "unique"}
    await create_invoice(api, code=5, issueDateTime=last)


async def test_deleting_releases_the_code_and_keeps_the_row(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(api, code=5)
    assert await delete(api, invoice_id) == (200, {"success": True, "message": "Invoice deleted."})
    assert await request_json(api, "GET", f"/api/invoices/{invoice_id}") == not_found("Invoice")
    assert await create_invoice(api, code=5)
    assert await owner.fetchval("select count(*) from documents") == 2


async def test_concurrent_deletions_succeed_once(api: Client) -> None:
    invoice_id = await create_invoice(api)
    await create_invoice(api)
    answers = await asyncio.gather(*[delete(api, invoice_id) for _ in range(20)])
    assert sorted(status for status, _ in answers) == [200] + [404] * 19
    assert (await request_json(api, "GET", "/api/invoices"))[1]["meta"]["total"] == 1


# Parties and currencies


async def test_pending_invoice_needs_no_party(api: Client) -> None:
    for invoice_type, shown in (
        ("PENDING_FINALIZE_INVOICE", None),
        ("PENDING_FINALIZE_SELF_BILLED_INVOICE", await read_as_buyer(api)),
    ):
        found = await get_invoice(api, await create_invoice(api, type=invoice_type, buyer=None))
        assert (found["type"], found["buyer"], found["supplier"]) == (invoice_type, shown, None)


async def read_as_buyer(api: Client) -> dict[str, Any]:
    return (await request_json(api, "GET", "/api/companies"))[1]["data"]["as_buyer"]


async def test_the_company_is_the_buyer_in_a_self_billed_record(api: Client) -> None:
    seller = buyer(name="Foshan Timber Export Co. Ltd.")
    body = {"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": seller}
    invoice_id, other_id = await create_invoice(api, **body), await create_invoice(api)
    company = await read_as_buyer(api)
    found = await get_invoice(api, invoice_id)
    assert (found["buyer"], found["supplier"]) == (company, seller)
    place = f"/api/invoices/{invoice_id}/export"
    assert (await request_json(api, "GET", place))[1]["buyer"] == company
    for path in ("/api/invoices", "/api/invoices?sort=-code"):
        _, listed = await request_json(api, "GET", path)
        buyers = {record["id"]: record["buyer"] for record in listed["data"]}
        assert buyers == {invoice_id: company, other_id: buyer()}, path
    assert (await update(api, invoice_id, isReady=True))[0] == 200
    assert (await get_invoice(api, invoice_id))["buyer"] == company


async def test_a_change_of_type_removes_the_party_that_the_company_becomes(api: Client) -> None:
    seller = buyer(name="Foshan Timber Export Co. Ltd.")
    invoice_id = await create_invoice(api, buyer=buyer(name="Aminah"))
    changed = {"type": "SELF_BILLED_INVOICE", "supplier": seller}
    assert (await update(api, invoice_id, **changed))[0] == 200
    assert (await request_json(api, "GET", "/api/invoices?query=Aminah"))[1]["data"] == []
    assert (await update(api, invoice_id, type="INVOICE"))[0] == 422
    assert (await update(api, invoice_id, type="INVOICE", buyer=buyer()))[0] == 200
    found = await get_invoice(api, invoice_id)
    assert (found["buyer"], found["supplier"]) == (buyer(), None)


async def test_foreign_currency_needs_an_exchange_rate(api: Client) -> None:
    assert await create_refused(api, currencyCode="USD") == {"/exchangeRate": "required"}
    found = await get_invoice(
        api, await create_invoice(api, currencyCode="USD", exchangeRate=4.4725)
    )
    assert found["currency_code"] == "USD" and found["exchange_rate"] == 4.4725
    assert (await get_invoice(api, await create_invoice(api, currencyCode="MYR")))[
        "exchange_rate"
    ] is None


# Update


async def test_update_changes_only_the_sent_members(api: Client) -> None:
    invoice_id = await create_invoice(
        api,
        invoiceLevelAllowanceCharge={"charges": [{"amount": 5}]},
        currencyCode="USD",
        exchangeRate=4.5,
    )
    before = await get_invoice(api, invoice_id)
    assert await update(api, invoice_id, buyer=buyer(name="Bakar")) == (
        200,
        {"success": True, "message": "Invoice updated.", "data": {"id": invoice_id}},
    )
    after = await get_invoice(api, invoice_id)
    assert after.pop("buyer") == buyer(name="Bakar") and before.pop("buyer") == buyer()
    assert after.pop("updated_at") > before.pop("updated_at")
    assert after == before


async def test_every_member_can_be_updated(api: Client) -> None:
    for changes, member, value in (
        ({"code": 777777}, "invoice_code", "777777"),
        ({"isReady": True}, "is_ready", True),
        ({"type": "PENDING_FINALIZE_INVOICE"}, "type", "PENDING_FINALIZE_INVOICE"),
        (
            {"issueDateTime": "2026-03-01T00:00:00+08:00"},
            "issue_date",
            "2026-02-28T16:00:00.000+00:00",
        ),
        ({"currencyCode": "SGD", "exchangeRate": 3.31}, "currency_code", "SGD"),
        ({"lineItems": [priced_line(10, 1)]}, "final_adjusted_amount", 10),
        (
            {"invoiceLevelAllowanceCharge": {"charges": [{"amount": 1}]}},
            "final_adjusted_amount",
            105.76,
        ),
    ):
        invoice_id = await create_invoice(api)
        assert (await update(api, invoice_id, **changes))[0] == 200, changes
        assert (await get_invoice(api, invoice_id))[member] == value


async def test_empty_update_changes_nothing(api: Client) -> None:
    invoice_id = await create_invoice(
        api, isReady=True, code=9, issueDateTime="2026-01-31T09:30:00.123456Z"
    )
    before = await get_invoice(api, invoice_id)
    assert (await update(api, invoice_id))[0] == 200
    after = await get_invoice(api, invoice_id)
    assert {**after, "updated_at": None} == {**before, "updated_at": None}


async def test_allowances_and_charges_can_be_removed(api: Client) -> None:
    invoice_id = await create_invoice(api, invoiceLevelAllowanceCharge={"charges": [{"amount": 1}]})
    assert (await update(api, invoice_id, invoiceLevelAllowanceCharge=None))[0] == 200
    found = await get_invoice(api, invoice_id)
    assert found["invoice_level_allowance_charge"] is None
    assert found["final_adjusted_amount"] == 104.76


async def test_update_is_validated_like_a_creation(api: Client) -> None:
    invoice_id = await create_invoice(api)
    for changes, path in (
        ({"type": "SELF_BILLED_INVOICE"}, "/supplier"),
        ({"currencyCode": "USD"}, "/exchangeRate"),
        ({"lineItems": [priced_line(1, 1, discount={"amount": 2})]}, "/lineItems/0/discount"),
        ({"issueDateTime": "2026-02-30T00:00:00Z"}, "/issueDateTime"),
        ({"lineItems": [line(originCountry="MY")]}, "/lineItems/0/originCountry"),
    ):
        status, body = await update(api, invoice_id, **changes)
        assert (status, list_paths(body)) == (422, [path])
    assert (await update(api, invoice_id, type="SELF_BILLED_INVOICE", supplier=buyer()))[0] == 200


@pytest.mark.parametrize(
    "changes, paths",
    [
        (
            {
                "issueDateTime": "2026-02-30T00:00:00Z",
                "lineItems": [line(taxDetails=[{"taxType": "99", "taxRate": {"percentage": 6}}])],
            },
            {"/issueDateTime", "/lineItems/0/taxDetails/0/taxType"},
        ),
        (
            {
                "lineItems": [
                    priced_line(1, 1, discount={"amount": 2}),
                    priced_line(0.12345678901, 1),
                ]
            },
            {"/lineItems/0/discount", "/lineItems/1/unit/price"},
        ),
        (
            {
                "lineItems": [priced_line(1, 1, discount={"amount": 2})],
                "payableRoundingAmount": 0.123,
            },
            {"/lineItems/0/discount", "/payableRoundingAmount"},
        ),
    ],
)
async def test_all_violations_of_a_document_are_reported_together(
    api: Client, changes: dict[str, Any], paths: set[str]
) -> None:
    body = await expect(api, 422, "POST", "/api/invoices", json=invoice(**changes))
    assert set(list_paths(body)) == paths and len(body["errors"]) == len(paths)


async def test_update_of_the_issue_date_moves_the_code_to_its_year(api: Client) -> None:
    await create_invoice(api, code=5, issueDateTime="2025-06-01T00:00:00Z")
    invoice_id = await create_invoice(api, code=5, issueDateTime="2026-06-01T00:00:00Z")
    status, body = await update(api, invoice_id, issueDateTime="2025-07-01T00:00:00Z")
    assert (status, body["errors"]) == (422, [TAKEN])
    assert (await update(api, invoice_id, issueDateTime="2024-07-01T00:00:00Z"))[0] == 200
    await create_invoice(api, code=5, issueDateTime="2026-06-01T00:00:00Z")


async def test_concurrent_updates_lose_nothing(api: Client) -> None:
    """Each update changes another member, and all changes are kept."""
    invoice_id = await create_invoice(api)
    changes = [
        {"isReady": True},
        {"code": 77},
        {"buyer": buyer(name="Bakar")},
        {"lineItems": [priced_line(10, 1)]},
    ]
    answers = await asyncio.gather(*[update(api, invoice_id, **change) for change in changes * 5])
    assert {status for status, _ in answers} == {200}
    found = await get_invoice(api, invoice_id)
    assert found["is_ready"] is True
    assert (found["invoice_code"], found["buyer"]["name"]) == ("77", "Bakar")
    assert found["final_adjusted_amount"] == 10


@pytest.mark.parametrize("place", ["/api/invoices", "/api/adjustment-notes"])
async def test_a_submitted_record_cannot_be_updated_or_deleted(api: Client, place: str) -> None:
    record_id = await create_valid_invoice(api)
    assert (await get_invoice(api, record_id))["is_submitted_to_portal"] is True
    if place == "/api/adjustment-notes":
        record_id = await create_valid_note(api, record_id)
    for method, done in (("PUT", "updated"), ("DELETE", "deleted")):
        message = CANCEL_FIRST.format(PLACES[place].lower(), done)
        answer = await request_json(api, method, f"{place}/{record_id}", json={})
        assert answer == (403, {"message": message, "code": "already_submitted"})


# Ids


#: Invalid ids as path segments. {} is replaced by an id of the company.
NO_IDS = (
    *("0", "-{}", "+{}", "0{}", "{}.0", "{}e0", "abc", "9223372036854775808"),
    *("9223372036854775807", "1" * 500, "%20", "{}%20", "%20{}", "%00", "{}%00", "null"),
    *("{}%2F2", "{}%3B", "{},{}", "%ff", "18446744073709551617", "%7B", "%7Bx%7D"),
)
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


def no_ids(record_id: int) -> list[str]:
    """Return invalid spellings of an id."""
    forms = [form.replace("{}", str(record_id)) for form in NO_IDS]
    return [*forms, str(record_id).translate(ARABIC)]


@pytest.fixture
async def both(start: StartService, environment: dict[str, str]) -> tuple[Client, Client]:
    """Return clients of two companies, which can create records of every resource."""
    return await start(**GENEROUS), await start(await make_company(environment), **GENEROUS)


async def test_every_route_answers_invalid_ids_with_the_same_404(
    both: tuple[Client, Client],
) -> None:
    api, stranger = both
    own, theirs, gone = [await create_one_of_each(each) for each in (api, stranger, api)]
    own["/api/invoices"] = await create_valid_invoice(api)
    gone["/api/invoices"] = await create_invoice(api)
    for place in PLACES:
        await expect(api, 200, "DELETE", f"{place}/{gone[place]}")
    for method, path in list_routes(api):
        place = place_of(path)
        if "{id}" not in path or path.startswith(INTEGRATIONS):
            continue
        expected = (
            404,
            b"" if method == "HEAD" else json_codec.dumps(not_found(PLACES[place])[1]).encode(),
        )
        for record_id in (*no_ids(own[place]), theirs[place], gone[place]):
            body = note() if path.endswith("/adjustment-note") else {}
            assert await raw(api, method, fill_path(path, record_id), body) == expected, (
                method,
                path,
                record_id,
            )


#: Invalid ids of the integration surface. {} is replaced by an id of the account.
NO_TEXTS = (
    *("1", "0", "abc", "null", "usr_", "org_", "{}0", "0{}", "%20{}", "{}%20", "{}%00"),
    *("{}%0a", "{}%2F2", "{}%3B", "%ff", "%7B", "usr_" + "0" * 22, "org_" + "0" * 22),
    *("usr_" + "1" * 500, "usr_" + "%D9%A1" * 22),
)


async def test_every_integration_route_answers_invalid_ids_with_one_404(
    start: StartService, environment: dict[str, str]
) -> None:
    api, stranger = await start(**GENEROUS), await start(**GENEROUS)
    account, rival = (
        await open_integrations(api, environment),
        await open_integrations(stranger, environment, "Ipoh"),
    )
    own = await create_integration_records(api, environment, account)
    theirs = await create_integration_records(stranger, environment, rival)
    user, organization = own.values()
    nouns = {f"{INTEGRATIONS}users": "User", f"{INTEGRATIONS}organizations": "Organization"}
    for method, path in list_routes(api):
        if "{id}" not in path or not path.startswith(INTEGRATIONS):
            continue
        place = place_of(path)
        body = {"error": "Not Found", **not_found(nouns[place])[1], "details": {}}
        message = json_codec.dumps(body).encode()
        others = {
            user,
            organization,
            user.swapcase(),
            user[:-1],
            organization[:-1],
            *theirs.values(),
        } - {own[place]}
        for record_id in (*(form.replace("{}", own[place]) for form in NO_TEXTS), *others):
            given = await raw(api, method, fill_path(path, record_id), {})
            assert given == (404, b"" if method == "HEAD" else message), (method, path, record_id)


async def test_document_of_another_record_gets_the_same_404(both: tuple[Client, Client]) -> None:
    api, stranger = both
    made, others, theirs = [await create_one_of_each(each) for each in (api, api, stranger)]
    places = ("/api/invoices", "/api/adjustment-notes", "/api/consolidated-invoices")
    for place in places:
        own = await submitted_document(api, place, made[place])
        other = await submitted_document(api, place, others[place])
        foreign = await submitted_document(stranger, place, theirs[place])
        elsewhere = await submitted_document(
            api, *next((each, made[each]) for each in places if each != place)
        )
        for document in (*no_ids(own), foreign, other, elsewhere):
            given = await raw(api, "GET", f"{place}/{made[place]}/submitted-documents/{document}")
            assert given == (
                404,
                b'{"message":"Submitted document not found","code":"not_found"}',
            ), (place, document)


async def submitted_document(api: Client, place: str, record_id: int) -> Any:
    """Submit a record if necessary, and return the id of its submitted document."""
    for _ in range(2):
        path = f"{place}/{record_id}/submitted-documents"
        if found := (await request_json(api, "GET", path))[1]:
            return found[0]["id"]
        await expect(api, 200, "POST", f"{place}/{record_id}/submit-to-portal", json={})
    return None


async def test_delivery_of_another_webhook_gets_the_same_404(both: tuple[Client, Client]) -> None:
    api, stranger = both
    address = {"url": "http://127.0.0.1:9/"}
    hooks = [
        (each, (await request_json(each, "POST", "/api/webhooks", json=address))[1])
        for each in (api, api, stranger)
    ]
    own, other, theirs = [await create_delivery(each, body["data"]["id"]) for each, body in hooks]
    webhook = hooks[0][1]["data"]["id"]
    for delivery in (*no_ids(own), other, theirs):
        given = await raw(
            api, "POST", f"/api/webhooks/{webhook}/deliveries/{delivery}/redeliver", {}
        )
        assert given == (404, b'{"message":"Delivery not found","code":"not_found"}'), delivery


async def raw(api: Client, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Return (status, bytes) of a response."""
    async with api.request(
        method, path, json=None if method in ("GET", "HEAD") else body
    ) as response:
        return response.status, await response.read()
