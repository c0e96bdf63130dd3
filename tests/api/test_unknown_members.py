"""Unknown members of a body, misspelt or stored without effect, and those that it removes."""

from itertools import islice
from typing import Any

import asyncpg
import pytest

from service import json_codec, members, schema
from service.errors import MAX_VIOLATIONS
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import create_record, expect, list_paths, request_json
from tests.conftest import Client
from tests.harness.bodies import buyer, invoice, line, note

KEYED = {"Idempotency-Key": "once"}
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


async def test_other_unknown_members_are_stored_and_named_in_warnings(api: Client) -> None:
    body = invoice(buyer=buyer(loyalty="gold"), lineItems=[line(warehouse="A~1/2")])
    answer = await expect(api, 201, "POST", "/api/invoices", json=body)
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


async def test_all_unknown_members_of_a_body_count_for_its_limit(api: Client) -> None:
    for count, status in ((10, 201), (11, 422)):
        lines = [
            line(**{f"own{number}of{each}": 0 for number in range(100)}) for each in range(count)
        ]
        body = await expect(api, status, "POST", "/api/invoices", json=invoice(lineItems=lines))
        assert [each["path"] for each in body.get("errors", ())] == [""] * (status == 422)
        named = [each for each in body.get("warnings", ()) if "/own" in each["path"]]
        assert len(named) == 50 * (status == 201)


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
    answer = await expect(api, 422, "POST", "/api/invoices", json=body)
    assert set(list_paths(answer)) == {"/cod", "/lineItems/0/classifications/0"}
    answer = await expect(api, 422, "PUT", "/api/companies", json={"state": "99", "nam": 1})
    assert set(list_paths(answer)) == {"/state", "/nam"}


async def test_a_member_with_two_violations_is_reported_once(api: Client) -> None:
    body = invoice(lineItems=[line(unit={"code": "kilogram", "price": 1, "count": 1})])
    _, answer = await request_json(api, "POST", "/api/invoices", json=body)
    assert list_paths(answer) == ["/lineItems/0/unit/code"]


def test_unknown_members_are_not_quoted_by_the_validator() -> None:
    """A message with all of them took as long as parsing the body, and is never sent."""
    names = [f"member {number}" for number in range(1000)]
    assert list(schema.careful_validator("cancel").iter_errors(dict.fromkeys(names, 0))) == []
    found = schema.find_violations("cancel", dict.fromkeys(names, 0))
    assert len(found) == MAX_VIOLATIONS and {each["rule"] for each in found} == {"unknown"}


# Updates that replace an object


async def test_a_partial_buyer_of_an_update_warns_of_removed_members(api: Client) -> None:
    full = buyer(email="a@b.my", **{"own/1": "x"})
    place = f"/api/invoices/{await create_invoice(api, buyer=full)}"
    part = {name: full[name] for name in ("type", "name", "registration")}
    part["address"] = {name: full["address"][name] for name in ("line1", "state", "country")}
    _, answer = await request_json(api, "PUT", place, json={"buyer": part, "isReady": False})
    assert {each["path"]: each["message"] for each in answer["warnings"]} == {
        f"/buyer/{path}": f"{name} was removed, because the update replaces buyer as a whole."
        for path, name in [
            ("contactNumber", "contactNumber"),
            ("email", "email"),
            ("own~11", "own/1"),
            ("address/city", "city"),
            ("address/zipCode", "zipCode"),
        ]
    }
    assert (await request_json(api, "GET", place))[1]["buyer"] == part


async def test_an_update_warns_only_of_what_it_removes_itself(api: Client) -> None:
    own = {"loyalty": "gold"}
    stored = {"buyer": buyer(**own), "metadata": {"a": "1", "b": "2"}, "prepayment": {"amount": 1}}
    place = f"/api/invoices/{await create_invoice(api, **stored)}"
    changes = {"buyer": buyer(loyalty=None), "metadata": {"c": "3"}, "prepayment": None}
    _, answer = await request_json(api, "PUT", place, json=changes)
    assert [each["path"] for each in answer["warnings"]] == [
        "/buyer/loyalty",  # is not sent to the portal
        "/metadata/a",
        "/metadata/b",
    ]
    _, answer = await request_json(api, "PUT", place, json={"lineItems": [line()]})
    assert "warnings" not in answer


async def test_updates_of_notes_and_requests_warn_of_removed_members(api: Client) -> None:
    to_note = f"/api/invoices/{await create_valid_invoice(api)}/adjustment-note"
    stored: dict[str, Any] = {"metadata": {"a": "1"}}
    note_id = (await create_record(api, to_note, **note(**stored)))["id"]
    asked = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    stored["address"] = {"line1": "5 Jalan Dahlia", "city": "Shah Alam"}
    request_id = (await create_record(api, "/api/einvoice-requests", **asked, **stored))["id"]
    changes: dict[str, Any] = {"metadata": {}}
    for place, paths in [
        (f"/api/adjustment-notes/{note_id}", ["/metadata/a"]),
        (f"/api/einvoice-requests/{request_id}", ["/metadata/a", "/address/city"]),
    ]:
        status, answer = await request_json(api, "PUT", place, json=changes)
        assert (status, [each["path"] for each in answer["warnings"]]) == (200, paths)
        changes["address"] = {"line1": "6 Jalan Dahlia"}


async def test_an_approval_does_not_warn_of_the_buyer_of_its_invoice(api: Client) -> None:
    await create_invoice(api, type="PENDING_FINALIZE_INVOICE", code=700)
    asked = {"invoiceCode": "700", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    request_id = (await create_record(api, "/api/einvoice-requests", **asked))["id"]
    path = f"/api/einvoice-requests/{request_id}"
    status, answer = await request_json(api, "PUT", path, json={"status": "Approve"})
    assert (status, "warnings" in answer) == (200, False)


async def test_a_repeated_attempt_does_not_repeat_its_warnings(
    api: Client, owner: asyncpg.Connection
) -> None:
    """PostgreSQL aborts the first one."""
    await owner.execute(
        "create sequence aborts; grant usage on sequence aborts to public;"
        "create function abort_once() returns trigger language plpgsql as $$ begin"
        " if nextval('aborts') = 1 then raise deadlock_detected; end if; return new; end $$;"
        "create trigger abort_once before insert on documents"
        " for each row execute function abort_once()"
    )
    sent = invoice(lineItems=[line(colour="red")])
    body = await expect(api, 201, "POST", "/api/invoices", json=sent, headers=KEYED)
    assert [each["path"] for each in body["warnings"]] == ["/lineItems/0/colour"]
    assert await owner.fetchval("select last_value from aborts") == 2
