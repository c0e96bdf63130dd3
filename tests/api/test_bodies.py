"""Request bodies that satisfy or violate the schemas, and bytes that are not JSON."""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from service import json_codec, schema
from service.api.table import OPERATIONS
from service.errors import MAX_VIOLATIONS, ValidationError
from service.http import requests
from service.members import find_unknown
from tests.api_invoices import create_invoice
from tests.api_reads import get_invoice
from tests.api_requests import (
    expect,
    fill_path,
    list_routes,
    normalise_error,
    open_integrations,
    request_json,
)
from tests.conftest import Client, StartService, make_company
from tests.harness.bodies import INVALID, VALID, buyer, invoice, line, load_bodies
from tests.harness.environments import GENEROUS
from tests.harness.no_json import NOT_A_BODY, NOT_JSON

GOOD, BAD = load_bodies(VALID), load_bodies(INVALID)
SCHEMAS = sorted(GOOD)


def test_every_body_schema_has_good_and_bad_examples() -> None:
    assert GOOD.keys() == BAD.keys() == schema.ALL.keys() - {"common", "records"}
    assert all([*GOOD.values(), *BAD.values()])


@pytest.mark.parametrize("kind", SCHEMAS)
def test_good_bodies_are_valid(kind: str) -> None:
    careful = schema.careful_validator(kind)
    for name, body in GOOD[kind].items():
        assert schema.find_violations(kind, body) == [], name
        assert careful.is_valid(body), name


@pytest.mark.parametrize("kind", SCHEMAS)
def test_bad_bodies_violate_one_rule(kind: str) -> None:
    for name, body in BAD[kind].items():
        violations = schema.find_violations(kind, body)
        assert len(violations) == 1, (name, violations)
        assert violations[0].keys() == {"path", "rule", "message"}, name
        assert violations[0]["message"].endswith((".", "?")), name


#: update schema -> (creation schema, a good body of it). Both have the same members.
CREATIONS = {
    "invoice_update": ("invoice_create", "an_invoice"),
    "adjustment_note_update": ("adjustment_note_create", "a_credit_note"),
    "webhook_update": ("webhook_create", "an_address"),
    "einvoice_request_update": ("einvoice_request_create", "the_least"),
    "integration_user_update": ("integration_user_create", "a_member"),
}
#: Members whose rules differ between an update and its creation.
APART = {"status", "targetInvoiceType", "role"}


@pytest.mark.parametrize("kind", CREATIONS)
def test_bodies_that_are_invalid_for_an_update_are_invalid_for_a_creation(kind: str) -> None:
    creation, good = CREATIONS[kind]
    for name, body in BAD[kind].items():
        if APART & body.keys():
            continue
        whole = {**GOOD[creation][good], **body}
        expected = _violations_without_hints(kind, body)
        assert _violations_without_hints(creation, whole) == expected, name


def _violations_without_hints(name: str, body: Any) -> list[Any]:
    """Return the violations of a body without the hints at similar members, which differ."""
    return [
        {**violation, "message": violation["message"].partition(" Did you mean ")[0]}
        for violation in schema.find_violations(name, body)
    ]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_body_without_unknown_members_is_not_deep(kind: str) -> None:
    """The depth of such a body is not measured, so that its schema must limit it."""
    deep: Any = 1
    for _ in range(json_codec.MAX_DEPTH):
        deep = [deep]
    for body in GOOD[kind].values():
        for holder, key in places(body):
            value, holder[key] = holder[key], deep
            assert not schema.has_only_known(kind, body), key
            holder[key] = {"deep": deep}
            assert not schema.has_only_known(kind, body), key
            holder[key] = value


#: Values at the limits of the schemas, and values that the two validators might treat differently.
DECIMALS = "7.0 7.5 1E+3 1E-20 0.0 -0.0 1E+20 1000.0000000000000000001 999999999999.1"
ODD = (
    *(None, True, False, 0, -1, 7, 10**12, 10**39, *map(Decimal, DECIMALS.split())),
    *("", " ", "\n", "\x1c", "\x85", "\u00a0", "\u180e", "\u200b", "\u2028", "\u3000", "\ufeff"),
    *(
        "x",
        "x" * 51,
        "x" * 300,
        "x" * 301,
        "é" * 300,
        "👩‍🌾" * 150,
        "12345",
        "12345\n",
        "KGM",
        "KGM\n",
    ),
    *("١٢٣٤٥", "2026-01-31T09:30:00Z", "2026-01-31T09:30:00Z\n", "2026-01-31T09:30"),
    *("2026-02-28", "2026-02-30", "0000-01-01", "-001-01-01"),
    *("INVOICE", "SELF_BILLED_INVOICE", "MYR", "USD", [], {}, [None], [{}]),
    *({"amount": 1}, {"amount": 1, "rate": 1}, {"percentage": 8}, [{"taxType": "02"}]),
    {"name": "x"},
)


@pytest.mark.parametrize("changes", [20, pytest.param(150, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_fast_and_careful_validators_agree(kind: str, changes: int) -> None:
    """Both judge every example and a number of random changes of it alike.

    The careful one leaves out unknown members.
    """
    fast, careful = schema.fast_validator(kind), schema.careful_validator(kind)
    shape = schema.body_shape(kind)
    for name, example in [*GOOD[kind].items(), *BAD[kind].items()]:
        chance = random.Random(name)
        for body in [example, *(mutate(example, chance) for _ in range(changes))]:
            has_unknown = any(each.is_closed for each in find_unknown(body, shape))
            assert fast.is_valid(body) == (careful.is_valid(body) and not has_unknown), body


def mutate(body: Any, chance: random.Random) -> Any:
    """Return a copy of a body with one to three members or entries changed, removed or added."""
    body = deepcopy(body)
    for _ in range(chance.randint(1, 3)):
        holder, key = chance.choice(list(places(body)) or [(body, "type")])
        if chance.random() < 0.15:
            holder.pop(key, None) if isinstance(holder, dict) else holder.clear()
        elif chance.random() < 0.15 and isinstance(holder, dict):
            holder[
                chance.choice(["supplier", "exchangeRate", "currencyCode", "discount", "nothing"])
            ] = choose_odd_value(chance)
        else:
            _put(holder, key, choose_odd_value(chance))
    return body


def choose_odd_value(chance: random.Random) -> Any:
    return deepcopy(chance.choice(ODD))


def _put(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, dict) or key < len(holder):
        holder[key] = value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of every member and entry at any depth."""
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, member in members:
        yield value, key
        yield from places(member)


# Bodies that no route accepts


JSON_TYPE = {"Content-Type": "application/json"}


#: The status, the code and the further members of an error.
Rejection = tuple[int, str, set[str]]


async def reject(api: Client, method: str, path: str, **request: Any) -> Rejection:
    """Return (status, code, further members) of a rejection, in the shape of the company API."""
    status, body = normalise_error(
        path, *await request_json(api, method, fill_path(path), **request)
    )
    return status, body["code"], set(body) - {"message", "code"}


async def test_every_route_rejects_invalid_json_and_invalid_bodies(everywhere: Client) -> None:
    operations = [each for each in OPERATIONS if each.method in ("POST", "PUT")]
    assert [(each.method, each.path) for each in operations if not each.body] == []
    for each in operations:
        for inputs, expected in (
            (NOT_JSON, (400, "invalid_json", set())),
            (NOT_A_BODY, (422, "validation_failed", {"errors"})),
        ):
            asked = [
                reject(everywhere, each.method, each.path, data=data, headers=JSON_TYPE)
                for data in inputs.values()
            ]
            for name, given in zip(inputs, await asyncio.gather(*asked), strict=False):
                assert given == expected, (each.method, each.path, name)


async def test_every_route_rejects_other_content_types(everywhere: Client) -> None:
    types = (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json5",
        "multipart/form-data",
        "text/json",
    )
    for method, path in list_routes(everywhere, "POST", "PUT"):
        for kind in types:
            given = await reject(
                everywhere, method, path, data=b"{}", headers={"Content-Type": kind}
            )
            assert given == (415, "unsupported_media_type", set()), (method, path, kind)


@pytest.mark.parametrize(
    "kind, data, status, code",
    [
        ("text/plain", b"{}", 415, "unsupported_media_type"),
        ("application/json", b"{", 400, "invalid_json"),
    ],
)
async def test_every_route_checks_the_body_before_the_query(
    everywhere: Client, kind: str, data: bytes, status: int, code: str
) -> None:
    for method, path in list_routes(everywhere, "POST", "PUT"):
        given = await reject(
            everywhere, method, f"{path}?foo=1", data=data, headers={"Content-Type": kind}
        )
        assert given == (status, code, set()), (method, path)


async def test_content_type_is_case_insensitive_and_may_have_a_charset(api: Client) -> None:
    invoice_id = await create_invoice(api)
    for kind in (
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json;charset=UTF-16",
    ):
        await expect(
            api,
            200,
            "PUT",
            f"/api/invoices/{invoice_id}",
            data=b"{}",
            headers={"Content-Type": kind},
        )


async def test_every_route_rejects_a_compressed_body(everywhere: Client) -> None:
    for method, path in list_routes(everywhere, "POST", "PUT"):
        for encoding, data in (
            ("gzip", gzip.compress(b"{}")),
            ("compress", b"{}"),
            ("strange", b"{}"),
        ):
            headers = {**JSON_TYPE, "Content-Encoding": encoding}
            given = await reject(everywhere, method, path, data=data, headers=headers)
            assert given == (415, "unsupported_media_type", set()), (method, path, encoding)


async def test_every_route_rejects_a_body_over_the_size_limit(
    start: StartService, environment: dict[str, str]
) -> None:
    api = await start(**GENEROUS, MAX_BODY_BYTES="4096")
    await open_integrations(api, environment)
    for method, path in list_routes(api, "POST", "PUT"):
        for data in (b" " * 4097, _pieces(5)):
            given = await reject(api, method, path, data=data, headers=JSON_TYPE)
            assert given == (413, "request_too_large", set()), (method, path)


async def _pieces(count: int) -> AsyncIterator[bytes]:
    """Yield a body without a known length."""
    for _ in range(count):
        yield b" " * 1000


async def test_body_of_exactly_the_size_limit_is_accepted(start: StartService) -> None:
    api = await start(MAX_BODY_BYTES="4096")
    body = json.dumps(invoice()).encode()
    await expect(api, 201, "POST", "/api/invoices", data=body.ljust(4096), headers=JSON_TYPE)


async def test_default_body_size_limit_is_2_mib(api: Client) -> None:
    for data, status in ((b" " * (2 * 1024 * 1024), 422), (b" " * (2 * 1024 * 1024 + 1), 413)):
        await expect(api, status, "POST", "/api/invoices", data=data, headers=JSON_TYPE)


async def test_missing_body_is_an_empty_object(api: Client) -> None:
    path = f"/api/invoices/{await create_invoice(api)}"
    for data in (None, b"", b" \r\n\t"):
        headers = JSON_TYPE if data else {}
        await expect(api, 200, "PUT", path, data=data, headers=headers)


async def test_whitespace_body_counts_as_missing_for_any_content_type(everywhere: Client) -> None:
    """The response equals that of a request without a body: never a 415."""
    for method, path in list_routes(everywhere, "POST", "PUT"):
        expected = await request_json(everywhere, method, fill_path(path, 10**15))
        for kind in (None, "text/plain", "application/json", "application/x-www-form-urlencoded"):
            headers = {"Content-Type": kind} if kind else {}
            skip = () if kind else ("Content-Type",)
            request = {"data": b" \r\n\t ", "headers": headers, "skip_auto_headers": skip}
            given = await request_json(everywhere, method, fill_path(path, 10**15), **request)
            assert given[0] == expected[0] and given[0] != 415, (method, path, kind)
            if path != "/api/companies":
                assert given == expected, (method, path, kind)


async def test_whitespace_body_is_accepted_by_actions(api: Client) -> None:
    invoice_id = await create_invoice(api)
    for path in ("preflight", "submit-to-portal", "cancel-latest-invoice-submitted"):
        request = {"data": b" \n", "skip_auto_headers": ("Content-Type",)}
        await expect(api, 200, "POST", f"/api/invoices/{invoice_id}/{path}", **request)


async def test_32_levels_of_nesting_are_stored_and_returned(api: Client) -> None:
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    invoice_id = await create_invoice(api, buyer=buyer(deep=deep))
    assert (await get_invoice(api, invoice_id))["buyer"]["deep"] == deep
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json={})


async def test_a_body_with_the_most_values_can_be_read_and_updated(api: Client) -> None:
    """A stored body has more of them, since the record has further members."""
    text = json_codec.dumps(invoice(buyer=buyer(more=[0])))
    more = json_codec.MAX_VALUES - sum(map(text.count, ",[{"))
    invoice_id = await create_invoice(api, buyer=buyer(more=[0] * (more + 1)))
    for method, path, body in (("PUT", "", {}), ("POST", "/preflight", {}), ("GET", "", None)):
        await expect(api, 200, method, f"/api/invoices/{invoice_id}{path}", json=body)


async def test_any_text_except_nul_is_returned_unchanged(api: Client) -> None:
    text = '  "\\\u0001\u007f\u2028\ufffe\ufeff 王👩‍🌾 é́ عائشة \U0010ffff  '
    invoice_id = await create_invoice(api, buyer=buyer(name=text, **{text: text}))
    stored = (await get_invoice(api, invoice_id))["buyer"]
    assert stored["name"] == text and stored[text] == text


# Error messages


async def get_violations(api: Client, **changes: Any) -> dict[str, Any]:
    """Return {path: (rule, message)} of a rejected creation."""
    body = await expect(api, 422, "POST", "/api/invoices", json=invoice(**changes))
    return {error["path"]: (error["rule"], error["message"]) for error in body["errors"]}


async def test_unknown_member_is_reported_with_a_suggestion(api: Client) -> None:
    violations = await get_violations(api, lineItem=[], zzz=1)
    assert violations == {
        "/lineItem": ("unknown", "lineItem is not a known member. Did you mean lineItems?"),
        "/zzz": ("unknown", "zzz is not a known member."),
    }


async def test_all_violations_are_reported_with_their_paths(api: Client) -> None:
    items = [line(description=" "), line(unit={"code": "KGM", "price": "1"})]
    violations = await get_violations(
        api, type="RECEIPT", code=0, issueDateTime="today", lineItems=items, **{"a/b~c": 1}
    )
    assert {path: rule for path, (rule, _) in violations.items()} == {
        "/type": "enum",
        "/code": "minimum",
        "/issueDateTime": "pattern",
        "/lineItems/0/description": "pattern",
        "/lineItems/1/unit/price": "type",
        "/lineItems/1/unit/count": "required",
        "/a~1b~0c": "unknown",
    }


async def test_at_most_fifty_violations_are_reported(api: Client) -> None:
    assert len(await get_violations(api, lineItems=[line(description="")] * 200)) == 50
    assert len(await get_violations(api, lineItems=[line(originCountry="XXX")] * 200)) == 50
    assert len(await get_violations(api, **{f"member{number}": 1 for number in range(200)})) == 50


async def test_document_with_more_than_1000_lines_is_rejected(api: Client) -> None:
    for count, status in ((1000, 201), (1001, 422), (5000, 422)):
        await expect(api, status, "POST", "/api/invoices", json=invoice(lineItems=[line()] * count))


#: name -> (schema, body, the rule that is violated first)
#: Bodies of the largest size that would take minutes if entries were compared pairwise.
LARGE = {
    "unknown members": (
        "invoice_create",
        {f"member{number}": 0 for number in range(150_000)},
        "unknown",
    ),
    "a long unknown member": ("cancel", {"x" * 2_000_000: 0}, "unknown"),
    "entries of all types": (
        "webhook_update",
        {"types": [[n] if n % 2 else {"a": n} for n in range(100)]},
        "enum",
    ),
    "unknown members of an open object": (
        "invoice_update",
        {"buyer": {f"mber{number}": 0 for number in range(150_000)}},
        "maxProperties",
    ),
    "unknown members of many objects": (
        "invoice_update",
        {"lineItems": [{f"descripti{line}o{n}": 0 for n in range(90)} for line in range(1000)]},
        "required",
    ),
    "ids of all types": (
        "consolidated_invoice_plan",
        {
            "type": "CONSOLIDATED_INVOICE",
            "invoiceIds": [[n] if n % 2 else {"a": n} for n in range(10_000)],
        },
        "type",
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_violations_of_a_large_body_are_found_quickly(name: str) -> None:
    kind, body, rule = LARGE[name]
    violations = schema.find_violations(kind, body)
    assert rule in {violation["rule"] for violation in violations}
    assert len(violations) <= MAX_VIOLATIONS


#: Arrays of request bodies, nested ones too: (schema, path of the array).
ARRAYS = (
    ("invoice_update", "/lineItems"),
    ("invoice_update", "/references"),
    ("invoice_update", "/lineItems/0/classifications"),
    ("invoice_update", "/lineItems/0/taxDetails"),
    ("invoice_update", "/invoiceLevelAllowanceCharge/allowances"),
    ("invoice_update", "/invoiceLevelAllowanceCharge/charges"),
    ("company_update", "/default_tax_types_and_rates"),
    ("consolidated_invoice_plan", "/invoiceIds"),
    ("integration_organization_update", "/members"),
    ("webhook_update", "/types"),
)


def nest(path: str, value: Any) -> Any:
    """Return a body that has the value at a path. Each array on the way has one entry."""
    for name in reversed(path.split("/")[1:]):
        value = [value] if name == "0" else {name: value}
    return value


@pytest.mark.parametrize("kind, path", ARRAYS)
@pytest.mark.parametrize("entry", [0, "x", {}, {"descriptino": 1}, []])
def test_entries_of_an_array_that_is_too_long_are_not_judged(
    kind: str, path: str, entry: Any
) -> None:
    body = json_codec.encode(nest(path, [entry] * 20_000))
    with pytest.raises(ValidationError) as raised:
        requests._parse_body(body, kind)
    found = raised.value.more["errors"]
    assert [each["rule"] for each in found if each["path"].startswith(path)] == ["maxItems"]


def test_every_array_of_a_request_has_a_limit() -> None:
    for kind in set(SCHEMAS) | {"common"}:
        for part in _parts(schema.ALL[kind]):
            assert "items" not in part or "maxItems" in part, part


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, dict | list):
            yield from _parts(child)


def test_duplicate_member_is_found_among_many() -> None:
    members = ",".join(f'"{number}":0' for number in range(150_000))
    with pytest.raises(json_codec.NotJson, match="twice"):
        json_codec.loads(f'{{{members},"149999":0}}'.encode())


def test_consolidated_invoice_of_more_than_10000_invoices_is_rejected() -> None:
    def rules(count: int) -> list[tuple[str, str]]:
        body = {"type": "CONSOLIDATED_INVOICE", "invoiceIds": list(range(1, count + 1))}
        return [
            (violation["path"], violation["rule"])
            for violation in schema.find_violations("consolidated_invoice_plan", body)
        ]

    assert rules(10_000) == [] and rules(10_001) == [("/invoiceIds", "maxItems")]


async def test_body_is_validated_before_the_record_is_read(
    api: Client, start: StartService, environment: dict[str, str]
) -> None:
    stranger = await start(await make_company(environment), **GENEROUS)
    await open_integrations(stranger, environment)
    invoice_id = await create_invoice(api)
    for method, path in list_routes(stranger, "POST", "PUT"):
        body = {"nothing": 1}
        given = await request_json(stranger, method, fill_path(path, invoice_id), json=body)
        assert normalise_error(path, *given)[0] == 422, (method, path)
