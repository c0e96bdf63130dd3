"""Unknown members of a body: rejected if they are misspelt, else named in warnings."""

from itertools import islice
from typing import Any

import pytest
from conftest import Client
from kit import buyer, create_invoice, get_invoice, invoice, line, request_json

from service import json_codec, members, schema

KNOWN = frozenset({"taxDetails", "zipCode", "contactNumber", "id", "tin", "name", "state", "type"})


@pytest.mark.parametrize(
    "name, similar",
    [
        ("taxDetail", "taxDetails"),
        ("tax_details", "taxDetails"),
        ("TAXDETAILS", "taxDetails"),
        ("zip-code", "zipCode"),
        ("contactNubmer", "contactNumber"),
        ("sate", "state"),
        ("names", "name"),
        ("ids", "id"),
        ("no", None),
        ("vat", None),
        ("note", None),
        ("loyaltyCard", None),
        ("postcode", None),
        ("", None),
        ("x" * 1000, None),
    ],
)
def test_a_name_resembles_a_known_one(name: str, similar: str | None) -> None:
    assert members.find_similar(name, KNOWN) == similar


async def test_a_misspelt_nested_member_is_rejected_with_the_known_name(api: Client) -> None:
    body = invoice(
        buyer=buyer(EMail="a@b.my"),
        lineItems=[line(taxDetail=[{"taxType": "01"}])],
        billingPeriod={"startDate": "2026-01-01"},
    )
    status, answer = await request_json(api, "POST", "/api/invoices", json=body)
    assert (status, answer["code"]) == (422, "validation_failed")
    assert {each["path"]: each["message"] for each in answer["errors"]} == {
        "/buyer/EMail": "EMail is not a known member. Did you mean email?",
        "/lineItems/0/taxDetail": "taxDetail is not a known member. Did you mean taxDetails?",
        "/billingPeriod/startDate": "startDate is not a known member. Did you mean start?",
    }


async def test_other_unknown_members_are_stored_and_named_in_warnings(api: Client) -> None:
    body = invoice(buyer=buyer(loyalty="gold"), lineItems=[line(warehouse="A~1/2")])
    status, answer = await request_json(api, "POST", "/api/invoices", json=body)
    assert status == 201
    warnings = [
        (
            "/buyer/loyalty",
            "loyalty is not a known member: it is stored, and not sent to the portal.",
        ),
        (
            "/lineItems/0/warehouse",
            "warehouse is not a known member: it is stored, and not sent to the portal.",
        ),
    ]
    assert [(each["path"], each["message"]) for each in answer["warnings"]] == warnings
    place = f"/api/invoices/{answer['data']['id']}"
    record = (await request_json(api, "GET", place))[1]
    assert record["buyer"]["loyalty"] == "gold"
    assert record["line_items"][0]["warehouse"] == "A~1/2"
    _, report = await request_json(api, "POST", f"{place}/preflight")
    assert [
        (each["path"], each["message"])
        for each in report["warnings"]
        if each["code"] == "UnknownMember"
    ] == warnings
    assert "gold" not in str(report["document"])


async def test_an_update_names_the_unknown_members_that_it_sends(api: Client) -> None:
    place = f"/api/invoices/{await create_invoice(api, buyer=buyer(loyalty='gold'))}"
    assert (await request_json(api, "PUT", place, json={"isReady": False}))[1].keys() == {
        "success",
        "message",
        "data",
    }
    _, answer = await request_json(api, "PUT", place, json={"buyer": buyer(loyalty="iron")})
    assert [each["path"] for each in answer["warnings"]] == ["/buyer/loyalty"]


async def test_a_replayed_response_has_the_warnings(api: Client) -> None:
    body, key = invoice(buyer=buyer(loyalty="gold")), {"Idempotency-Key": "warned"}
    first = await request_json(api, "POST", "/api/invoices", json=body, headers=key)
    assert "warnings" in first[1]
    assert await request_json(api, "POST", "/api/invoices", json=body, headers=key) == first


def test_an_object_has_at_most_100_unknown_members() -> None:
    for count, rules in ((100, []), (101, [("/buyer", "maxProperties")])):
        body = {"buyer": {f"own{number}": 0 for number in range(count)}}
        found = schema.find_violations("invoice_update", body)
        assert [(each["path"], each["rule"]) for each in found] == rules


def test_the_first_50_unknown_members_of_an_object_are_compared() -> None:
    for place, count in ((49, 1), (50, 0)):
        names = [f"own{number}" for number in range(60)]
        names[place] = "contactNubmer"
        found = schema.find_violations("invoice_update", {"buyer": dict.fromkeys(names, 0)})
        assert len(found) == count


def test_a_body_has_at_most_1000_different_unknown_members() -> None:
    for count, paths in ((20, []), (21, [""])):
        lines = [
            line(**{f"own{number}of{each}": 0 for number in range(50)}) for each in range(count)
        ]
        found = schema.find_violations("invoice_update", {"lineItems": lines})
        assert [each["path"] for each in found] == paths
    lines = [line(**{f"own{number}": 0 for number in range(50)})] * 1000
    assert schema.find_violations("invoice_update", {"lineItems": lines}) == []


@pytest.mark.parametrize("name", ["x" * 200, "\0"])
def test_paths_of_violations_in_a_body_with_long_names_stay_short(name: str) -> None:
    body = {"x" * 100_000: {f"{name}{number}": "\0" for number in range(20_000)}}
    found = list(islice(json_codec.find_invalid_text(body), 50))
    assert len(found) == 50 and max(map(len, found)) < 500


async def test_an_einvoice_request_names_unknown_members(api: Client) -> None:
    body: dict[str, Any] = {
        "invoiceCode": "1",
        "type": "LOCAL_INDIVIDUAL",
        "name": "Aminah",
        "address": {"line1": "5 Jalan Dahlia", "floor": "3"},
    }
    status, answer = await request_json(api, "POST", "/api/einvoice-requests", json=body)
    assert (status, [each["path"] for each in answer["warnings"]]) == (201, ["/address/floor"])
    body["address"] = {"Line1": "5 Jalan Dahlia"}
    status, answer = await request_json(api, "POST", "/api/einvoice-requests", json=body)
    assert (status, answer["errors"][0]["path"]) == (422, "/address/Line1")


async def test_violations_of_schema_and_code_tables_are_reported_together(api: Client) -> None:
    body = {**invoice(lineItems=[line(classifications=["22"])]), "cod": 7}
    status, answer = await request_json(api, "POST", "/api/invoices", json=body)
    assert status == 422
    assert {each["path"] for each in answer["errors"]} == {"/cod", "/lineItems/0/classifications/0"}
    status, answer = await request_json(
        api, "PUT", "/api/companies", json={"state": "99", "nam": 1}
    )
    assert {each["path"] for each in answer["errors"]} == {"/state", "/nam"}


async def test_a_member_with_two_violations_is_reported_once(api: Client) -> None:
    body = invoice(lineItems=[line(unit={"code": "kilogram", "price": 1, "count": 1})])
    _, answer = await request_json(api, "POST", "/api/invoices", json=body)
    assert [each["path"] for each in answer["errors"]] == ["/lineItems/0/unit/code"]


async def test_a_known_invoice_has_no_warnings(api: Client) -> None:
    status, answer = await request_json(api, "POST", "/api/invoices", json=invoice())
    assert (status, answer.keys()) == (201, {"success", "message", "data"})
    assert (await get_invoice(api, answer["data"]["id"]))["status"] == "Draft"
