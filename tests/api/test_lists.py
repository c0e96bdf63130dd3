"""The list of invoices: pagination, filters and orders. Spec: Pagination meta."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from yarl import URL

from tests.api.test_exports import insert_copies
from tests.api.test_notes import create_note
from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import (
    create_integration_records,
    create_record,
    expect,
    list_paths,
    list_rules,
    open_integrations,
    request_json,
    submit,
)
from tests.conftest import Client, StartService, make_company
from tests.harness.bodies import buyer, example, invoice
from tests.harness.environments import GENEROUS


async def get_page(api: Client, **query: Any) -> tuple[dict[str, Any], list[Any]]:
    body = await expect(api, 200, "GET", "/api/invoices", params=query)
    assert list(body) == ["meta", "data"]
    return body["meta"], body["data"]


async def list_codes(api: Client, **query: Any) -> list[int]:
    return [int(found["invoice_code"]) for found in (await get_page(api, **query))[1]]


async def create_with_codes(api: Client, *codes: int, **changes: Any) -> list[int]:
    """Create invoices with these codes one after another, and return their ids."""
    return [await create_invoice(api, code=code, **changes) for code in codes]


async def test_empty_list_has_one_page(api: Client) -> None:
    assert await get_page(api) == (
        {
            "total": 0,
            "per_page": 10,
            "current_page": 1,
            "last_page": 1,
            "first_page": 1,
            "first_page_url": "/api/invoices?page=1&per_page=10",
            "last_page_url": "/api/invoices?page=1&per_page=10",
            "next_page_url": None,
            "previous_page_url": None,
        },
        [],
    )


async def test_list_entry_equals_the_record(api: Client) -> None:
    (invoice_id,) = await create_with_codes(api, 1)
    for query in ({}, {"sort": "code"}):
        assert (await get_page(api, **query))[1] == [await get_invoice(api, invoice_id)]


async def test_following_next_pages_finds_every_invoice_once(api: Client) -> None:
    await create_with_codes(api, *range(1, 8))
    for query, order in (
        ("", range(7, 0, -1)),
        ("&sort=id", range(1, 8)),
        ("&type=INVOICE", range(7, 0, -1)),
    ):
        path, seen = f"/api/invoices?per_page=3{query}", []
        while path:
            _, body = await request_json(api, "GET", path)
            seen += [int(found["invoice_code"]) for found in body["data"]]
            path = body["meta"]["next_page_url"]
        assert seen == list(order), query


async def test_middle_page_has_previous_and_next_urls(api: Client) -> None:
    await create_with_codes(api, *range(1, 8))
    meta, data = await get_page(api, page=2, per_page=3)
    assert [found["invoice_code"] for found in data] == ["4", "3", "2"]
    assert meta["current_page"] == 2 and meta["last_page"] == 3 and meta["per_page"] == 3
    assert meta["previous_page_url"] == "/api/invoices?page=1&per_page=3"
    assert meta["next_page_url"] == meta["last_page_url"] == "/api/invoices?page=3&per_page=3"


async def test_page_past_the_end_is_empty_with_a_previous_url(api: Client) -> None:
    await create_with_codes(api, 1, 2, 3)
    for page, query in (
        (2, {}),
        (999, {}),
        (10**9, {}),
        (2, {"sort": "code"}),
        (10**9, {"sort": "code"}),
    ):
        meta, data = await get_page(api, page=page, **query)
        assert data == []
        assert meta["total"] == 3
        assert meta["last_page"] == 1
        assert meta["current_page"] == page
        assert meta["next_page_url"] is None
        assert parse_qs(urlsplit(meta["previous_page_url"]).query)["page"] == ["1"]


@pytest.mark.own_service
async def test_far_pages_are_those_of_the_whole_list(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A far page is read from the nearer end of the list."""
    codes = [*range(1, 8)]
    await create_with_codes(api, *codes)
    monkeypatch.setattr("service.api.records.FAR_OFFSET", -1)
    for per_page in (1, 2, 3, 7, 10):
        found: list[str] = []
        for number in range(1, 10):
            meta, data = await get_page(api, page=number, per_page=per_page)
            assert meta["total"] == len(codes)
            found += [record["invoice_code"] for record in data]
        assert found == [str(code) for code in reversed(codes)], per_page


#: Filters with a value, and parameters that are all invalid.
FILTERS = {
    "query": "a&b=ü +1",
    "status": "Draft",
    "issued_from": "2026-01-01T00:00:00+08:00",
    "sort": "-code",
}
WRONG = {
    "page": "x",
    "per_page": "0",
    "sort": "name",
    "status": "draft",
    "type": "CREDIT_NOTE",
    "issued_from": "2026-02-30",
    "issued_to": "tomorrow",
    "query": "x" * 301,
}


async def test_page_urls_keep_the_filters_that_have_a_value(api: Client) -> None:
    meta, _ = await get_page(api, page=2, per_page=5, type="", **FILTERS)
    for name in ("first_page_url", "last_page_url", "previous_page_url"):
        path, _, given = meta[name].partition("?")
        assert path == "/api/invoices"
        assert parse_qs(given) == {
            "page": ["1"],
            "per_page": ["5"],
            **{name: [value] for name, value in FILTERS.items()},
        }


async def test_page_holds_up_to_a_hundred_records(api: Client) -> None:
    await create_with_codes(api, *range(1, 103))
    for query in ({}, {"sort": "-id"}):
        meta, data = await get_page(api, per_page=100, **query)
        assert len(data) == 100 and meta["last_page"] == 2


async def test_invalid_page_parameters_are_rejected(api: Client) -> None:
    words = "0 -1 1.5 1e1 ten +1 ٣ ² 10000000000"
    texts = (*words.split(), "", " 1", "1" * 30, "1" * 5000)
    for name, value in [
        *(("page", text) for text in texts),
        *(("per_page", text) for text in texts),
        ("per_page", "101"),
    ]:
        status, body = await request_json(api, "GET", "/api/invoices", params={name: value})
        assert (status, list_paths(body)) == (422, [name]), (name, value)


async def test_all_invalid_parameters_are_reported_together(api: Client) -> None:
    status, body = await request_json(api, "GET", "/api/invoices", params=WRONG)
    assert status == 422 and set(body) == {"message", "code", "errors"}
    assert body["code"] == "validation_failed"
    assert sorted(error["path"] for error in body["errors"]) == sorted(WRONG)
    assert all(error["message"].startswith(error["path"]) for error in body["errors"])


async def test_duplicate_or_malformed_parameter_is_rejected(api: Client) -> None:
    rules = {
        "page=1&page=2": ("page", "unique"),
        "sort=id&sort=id": ("sort", "unique"),
        **dict.fromkeys(("query=%FF", "query=%ED%A0%80", "query=a%00b"), ("query", "text")),
        "other=%FF&other=1": ("other", "unknown"),
        "query=1&%FF=1": ("\ufffd", "unknown"),
    }
    for query, rule in rules.items():
        status, body = await request_json(api, "GET", URL(f"/api/invoices?{query}", encoded=True))
        assert status == 422 and list_rules(body) == [rule], query
    url = URL("/api/invoices?query=%EF%BF%BD", encoded=True)
    await expect(api, 200, "GET", url)


@pytest.mark.parametrize("path", ["invoices", "adjustment-notes", "einvoice-requests"])
@pytest.mark.parametrize(
    "key, shown", [("%FF", "\ufffd"), ("%ED%A0%80", 3 * "\ufffd"), ("a%00", "a\ufffd")]
)
async def test_a_filter_with_an_invalid_name_is_a_violation(
    api: Client, path: str, key: str, shown: str
) -> None:
    url = URL(f"/api/{path}?metadata[{key}]=x&per_page=1", encoded=True)
    body = await expect(api, 422, "GET", url)
    assert list_rules(body) == [(f"metadata[{shown}]", "text")]


@pytest.mark.parametrize("path", ["invoices", "einvoice-requests", "submitted-documents"])
async def test_unknown_parameters_are_reported_with_invalid_ones(api: Client, path: str) -> None:
    url = f"/api/{path}?foo=1&page=0&status=x&foo=2"
    body = await expect(api, 422, "GET", url)
    assert sorted(list_paths(body)) == ["foo", "page", "status"]


async def test_unknown_parameters_of_events_are_reported_with_invalid_ones(api: Client) -> None:
    body = await expect(api, 422, "GET", "/api/events?foo=1&limit=0&types=x&after=x")
    assert sorted(list_paths(body)) == ["after", "foo", "limit", "types"]


async def test_a_query_has_at_most_fifty_violations(api: Client) -> None:
    names = "&".join(f"foo{number}=1" for number in range(60))
    for path in ("/api/invoices?page=0&status=x&", "/api/events?limit=0&", "/api/companies?"):
        body = await expect(api, 422, "GET", f"{path}{names}")
        assert len(body["errors"]) == 50


async def test_hostile_filter_texts_find_nothing(api: Client) -> None:
    await create_invoice(api)
    words = "' % _ \\ * 💥 %00 1e400 :status"
    for text in (*words.split(), '"; drop table invoices; --'):
        assert await list_codes(api, query=text) == [], text
    for path in ("/api/invoices?query=%00", "/api/invoices?query=a%00b"):
        await expect(api, 422, "GET", path)
    for text in ("0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00"):
        status, body = await request_json(api, "GET", f"/api/invoices?issued_from={text}")
        assert (status, body["errors"][0]["path"]) == (422, "issued_from")
    for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"):
        await expect(api, 200, "GET", f"/api/invoices?issued_from={text}&issued_to={text}")


# Filters


async def test_list_is_filtered_by_status(api: Client) -> None:
    _draft, sent = await create_with_codes(api, 1, 2)
    await submit(api, sent)
    await wait_for_status(api, sent, "Valid")
    await create_note(api, sent)
    assert await list_codes(api, status="Draft") == [1]
    assert await list_codes(api, status="Draft", per_page=1) == [1]
    assert await list_codes(api, status="Draft", per_page=1, sort="-updated_at") == [1]
    assert await list_codes(api, status="Valid") == [2]
    assert await list_codes(api, status="Cancelled") == []


async def test_list_is_filtered_by_type(api: Client) -> None:
    await create_invoice(api, code=1)
    await create_invoice(api, code=2, type="SELF_BILLED_INVOICE", supplier=buyer())
    await create_invoice(api, code=3, type="PENDING_FINALIZE_INVOICE", buyer=None)
    types = ("INVOICE", "SELF_BILLED_INVOICE", "PENDING_FINALIZE_INVOICE")
    for code, invoice_type in enumerate(types, start=1):
        assert await list_codes(api, type=invoice_type) == [code]


async def test_list_is_filtered_by_inclusive_issue_dates(api: Client) -> None:
    for code, hour in enumerate(("09", "10", "11"), start=1):
        await create_invoice(api, code=code, issueDateTime=f"2026-01-31T{hour}:00:00Z")
    assert await list_codes(api, issued_from="2026-01-31T10:00:00Z") == [3, 2]
    assert await list_codes(api, issued_to="2026-01-31T18:00:00+08:00") == [2, 1]
    assert await list_codes(
        api, issued_from="2026-01-31T09:00:01Z", issued_to="2026-01-31T10:59:59Z"
    ) == [2]
    await create_invoice(api, code=4, issueDateTime="2026-02-01T00:00:00.0009Z")
    shown = "2026-02-01T00:00:00.000+00:00"
    assert await list_codes(api, issued_from=shown, issued_to=shown) == [4]


async def test_a_day_is_a_whole_day_of_the_business_time_zone(api: Client) -> None:
    """The zone is UTC+8."""
    for code, at in enumerate(
        ("30T15:59:59.999Z", "30T16:00:00Z", "31T15:59:59.999Z", "31T16:00:00Z"), start=1
    ):
        await create_invoice(api, code=code, issueDateTime=f"2026-01-{at}")
    assert await list_codes(api, issued_from="2026-01-31") == [4, 3, 2]
    assert await list_codes(api, issued_to="2026-01-31") == [3, 2, 1]
    assert await list_codes(api, issued_from="2026-01-31", issued_to="2026-01-31") == [3, 2]
    assert await list_codes(api, issued_from="1000-01-01", issued_to="8999-12-31") == [4, 3, 2, 1]


@pytest.mark.parametrize(
    "text, is_plus_lost",
    [
        ("2026-01-31T09:30:00+08:00", True),
        ("2026-01-31+09", False),
        ("0001-01-01", False),
        ("9999-12-31", False),
    ],
)
async def test_a_lost_plus_sign_is_named(api: Client, text: str, is_plus_lost: bool) -> None:
    url = URL(f"/api/invoices?issued_to={text}", encoded=True)
    body = await expect(api, 422, "GET", url)
    assert ("A plus sign is written %2B in a URL." in body["message"]) == is_plus_lost


async def test_query_finds_code_full_code_and_buyer_name(api: Client) -> None:
    await create_with_codes(api, 17, 70, 77)
    await create_invoice(api, code=7, buyer=buyer(name="Rosmah binti Idris"))
    await create_invoice(api, code=8, type="PENDING_FINALIZE_INVOICE", buyer=None)
    words = "7 00007 INV-00007 inv-00007 INV-7 inv-0007 Rosmah ROSMAH ros"
    for query in (*words.split(), "rosmah binti", "binti id", " Rosmah,  binti Idris. "):
        assert await list_codes(api, query=query) == [7], query
    for query in ("smah", "Rosmah Idris", "inti Idris", "V-00007", "INV-00", "SB-00007"):
        assert await list_codes(api, query=query) == [], query


async def test_query_finds_the_present_name_of_a_buyer(api: Client) -> None:
    invoice_id = await create_invoice(api, code=7, buyer=buyer(name="Rosmah binti Idris"))
    changed = invoice(code=7, buyer=buyer(name="Rosmah Holdings Sdn. Bhd."))
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json=changed)
    assert await list_codes(api, query="rosmah holdings") == [7]
    assert await list_codes(api, query="binti") == []
    await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")
    assert await list_codes(api, query="rosmah") == []


async def test_buyers_are_found_by_tin(api: Client) -> None:
    """A query finds the beginning of a TIN, and buyer_tin the whole one."""
    tins = ("C1234567890", "C12345678900", "IG12345678900")
    for code, tin in enumerate(tins, start=1):
        await create_invoice(api, code=code, buyer=buyer(name=f"Buyer {code}", tin=tin))
    await create_invoice(api, code=4, buyer=buyer(name=tins[0]))  # has no TIN
    assert await list_codes(api, query="c1234567890") == [4, 2, 1]
    assert await list_codes(api, query="buyer 2 c123") == [2]
    assert await list_codes(api, query="1234567890") == []
    for code, tin in enumerate(tins, start=1):
        for text in (tin, f" {tin.lower()} "):
            assert await list_codes(api, buyer_tin=text) == [code], text
    assert await list_codes(api, buyer_tin=tins[0], query="Buyer 1") == [1]
    for query in ("Buyer 2", "absent"):
        assert await list_codes(api, buyer_tin=tins[0], query=query) == []
    for text in ("C123", "buyer"):
        assert await list_codes(api, buyer_tin=text) == [], text
    for text in (" ", "-"):
        body = await expect(api, 422, "GET", "/api/invoices", params={"buyer_tin": text})
        assert list_rules(body) == [("buyer_tin", "filter")]
    changed = invoice(code=1, buyer=buyer(tin=tins[2]))
    invoice_id = (await get_page(api, buyer_tin=tins[0]))[1][0]["id"]
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json=changed)
    assert await list_codes(api, buyer_tin=tins[2]) == [3, 1]


@pytest.mark.parametrize("tin", ["C 1234567890", "c-1234567890", " C1234567890\u200b"])
async def test_each_spelling_of_a_tin_is_found(api: Client, tin: str) -> None:
    """It is that TIN for the portal, also if the buyer has no name."""
    await create_invoice(api, code=1, buyer=buyer(tin=tin))
    await create_invoice(api, code=2, buyer={"tin": tin})
    for text in ("C1234567890", tin):
        assert await list_codes(api, buyer_tin=text) == [2, 1]
    assert await list_codes(api, query="C1234567890", buyer_tin=tin) == [2, 1]


async def test_words_end_at_punctuation_and_blanks_of_a_query_do_not_count(api: Client) -> None:
    await create_invoice(api, code=7, buyer=buyer(name="\u597d\u5473\uff08\u96ea\u9686\uff09"))
    for query in ("\u96ea\u9686", "INV-00007 ", " 7"):
        assert await list_codes(api, query=query) == [7], query


async def test_notes_are_found_by_the_tin_of_the_buyer_of_their_invoice(api: Client) -> None:
    for code, tin in enumerate(("C1234567890", "C2345678900"), start=1):
        invoice_id = await create_valid_invoice(api, code=code, buyer=buyer(tin=tin))
        await create_note(api, invoice_id, adjustmentNoteCode=code)
    for query in ("buyer_tin=C2345678900", "query=c2345", "query=c2345&buyer_tin=c2345678900"):
        body = await expect(api, 200, "GET", f"/api/adjustment-notes?{query}")
        assert [found["code"] for found in body["data"]] == [2], query


async def test_a_walk_by_after_misses_and_repeats_nothing(api: Client) -> None:
    """Invoices are created and deleted during the walk. Its total is that of the list."""
    ids = await create_with_codes(api, *range(1, 8))
    for query in (
        "per_page=2",
        "per_page=2&sort=",
        "per_page=2&status=Draft",
        "per_page=2&query=aminah&count_to=1",
    ):
        place: str | None = f"/api/invoices?{query}&after={ids[-1] + 1}"
        walked: list[int] = []
        while place:
            body = await expect(api, 200, "GET", place)
            walked += [found["id"] for found in body["data"]]
            place = body["meta"]["next_page_url"]
            ids += await create_with_codes(api, len(ids) + 1)
            assert body["meta"]["previous_page_url"] is None
            if "count_to" not in query:
                assert body["meta"]["total"] == len(ids) - 1
        assert walked == ids[: len(walked)][::-1] and len(walked) >= 7, query
    await expect(api, 200, "DELETE", f"/api/invoices/{ids[1]}")
    _, data = await get_page(api, after=ids[1], sort="id", per_page=2)
    assert [found["id"] for found in data] == ids[2:4]


@pytest.mark.parametrize(
    "query, rule",
    [
        ("after=first", "range"),
        ("after=-1", "range"),
        ("after=1&page=2", "conflict"),
        ("after=1&sort=code", "conflict"),
    ],
)
async def test_an_invalid_after_is_a_violation(api: Client, query: str, rule: str) -> None:
    body = await expect(api, 422, "GET", f"/api/invoices?{query}")
    assert list_rules(body) == [("after", rule)]


async def test_query_finds_a_full_code_whose_prefix_ends_with_digits(api: Client) -> None:
    setting = (await request_json(api, "GET", "/api/companies"))[1]["data"]["setting"]
    changed = {"setting": {**setting, "INVOICE_PREFIX": "A1"}}
    await expect(api, 200, "PUT", "/api/companies", json=changed)
    await create_with_codes(api, 7, 100007)
    assert await list_codes(api, query="a100007") == [7]
    assert await list_codes(api, query="100007") == [100007]
    changed = {"setting": {**setting, "INVOICE_PREFIX": "A0"}}
    await expect(api, 200, "PUT", "/api/companies", json=changed)
    for query in ("A000007", "a007", "A07"):
        assert await list_codes(api, query=query) == [7], query


async def test_query_finds_the_number_under_which_a_document_was_submitted(api: Client) -> None:
    await create_valid_invoice(api, code=7)
    setting = (await request_json(api, "GET", "/api/companies"))[1]["data"]["setting"]
    changed = {"setting": {**setting, "INVOICE_PREFIX": "N-"}}
    await expect(api, 200, "PUT", "/api/companies", json=changed)
    assert await list_codes(api, query="INV-00007") == [7]
    assert await list_codes(api, query="N-00007") == [7]


async def test_query_uses_the_prefix_of_self_billed_invoices(api: Client) -> None:
    await create_invoice(api, code=7)
    await create_invoice(api, code=8, type="PENDING_FINALIZE_SELF_BILLED_INVOICE", buyer=None)
    assert await list_codes(api, query="SB-00008") == [8]
    assert await list_codes(api, query="INV-00008") == []


async def test_filters_are_combined_and_affect_the_total(api: Client) -> None:
    await create_with_codes(api, 1, 2, 3, issueDateTime="2026-01-31T09:30:00Z")
    await create_with_codes(api, 4, issueDateTime="2026-02-01T00:00:00Z")
    await create_invoice(
        api,
        code=5,
        issueDateTime="2026-01-31T09:30:00Z",
        type="PENDING_FINALIZE_INVOICE",
        buyer=None,
    )
    narrow = {
        "type": "INVOICE",
        "status": "Draft",
        "issued_to": "2026-01-31T23:59:59Z",
        "query": "aminah",
    }
    meta, data = await get_page(api, per_page=2, sort="code", **narrow)
    assert meta["total"] == 3 and meta["last_page"] == 2
    assert [found["invoice_code"] for found in data] == ["1", "2"]


@pytest.mark.parametrize(
    "path, name, similar",
    [
        ("/api/invoices", "state", "status"),
        ("/api/invoices", "perpage", "per_page"),
        ("/api/adjustment-notes", "issuedFrom", "issued_from"),
        ("/api/consolidated-invoices", "nothing", None),
        ("/api/einvoice-requests", "Status", "status"),
        ("/api/events", "type", "types"),
        ("/api/companies", "page", None),
        ("/api/invoices/export-all", "status", None),
        ("/api/invoices/1", "expand", None),
    ],
)
async def test_an_unknown_query_parameter_is_a_422_that_names_the_most_similar(
    api: Client, path: str, name: str, similar: str | None
) -> None:
    body = await expect(api, 422, "GET", path, params={name: "Valid"})
    assert body["errors"] == [
        {
            "path": name,
            "rule": "unknown",
            "message": f"{name} is not a known query parameter."
            + (f" Did you mean {similar}?" if similar else ""),
        }
    ]


async def test_empty_filter_is_ignored(api: Client) -> None:
    await create_with_codes(api, 1, 2)
    assert await list_codes(api, status="", type="", query="", issued_from="") == [2, 1]


async def test_a_blank_search_text_is_no_filter(api: Client, environment: dict[str, str]) -> None:
    await create_invoice(api)
    await create_record(api, "/api/einvoice-requests", **example("einvoice_request_create"))
    account = await open_integrations(api, environment)
    await create_integration_records(api, environment, account)
    for path in (
        *("invoices", "einvoice-requests", "code-tables/units"),
        *("integrations/users", "integrations/organizations"),
    ):
        found = await expect(api, 200, "GET", f"/api/{path}?query=%20%20")
        plain = await expect(api, 200, "GET", f"/api/{path}")
        assert found["data"] and found["data"] == plain["data"], path


async def test_list_is_sorted_in_every_order(api: Client) -> None:
    """20 and 11 have the same issue date; they are ordered by id, in the same direction."""
    for code, day in ((30, 2), (10, 1), (20, 3), (11, 3)):
        await create_invoice(api, code=code, issueDateTime=f"2026-01-0{day}T00:00:00Z")
    for sort, order in (
        ("id", [30, 10, 20, 11]),
        ("-id", [11, 20, 10, 30]),
        ("code", [10, 11, 20, 30]),
        ("-code", [30, 20, 11, 10]),
        ("issue_date", [10, 30, 20, 11]),
        ("-issue_date", [11, 20, 30, 10]),
    ):
        assert await list_codes(api, sort=sort) == order, sort
        assert await list_codes(api, sort=sort, per_page=2, page=2) == order[2:], sort


# Invoices that are not listed


async def test_deleted_invoices_are_not_listed_or_counted(api: Client) -> None:
    ids = await create_with_codes(api, 1, 2, 3)
    await expect(api, 200, "DELETE", f"/api/invoices/{ids[1]}")
    sorts = ({"sort": "-id"}, {"sort": "-updated_at"})
    for query in ({}, {"status": "Draft"}, *sorts, {"query": "aminah"}):
        meta, data = await get_page(api, **query)
        assert meta["total"] == 2 and [found["invoice_code"] for found in data] == ["3", "1"]
        assert await list_codes(api, per_page=1, page=2, **query) == [1]


async def test_rejected_creation_is_not_counted(api: Client) -> None:
    await create_with_codes(api, 1)
    await expect(api, 422, "POST", "/api/invoices", json=invoice(code=1))
    assert (await get_page(api))[0]["total"] == 1


# Bounded totals


async def test_count_to_bounds_the_total_of_a_search(
    own_api: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(owner, await create_invoice(own_api), 31)
    ids = [row["id"] for row in await owner.fetch("select id from documents order by id desc")]
    for query in ("aminah", "a", "aminah binti", "aminah&issued_from=2020-01-01&amount_from=1"):
        for sort in ("-id", "code"):
            place = f"/api/invoices?query={query}&sort={sort}&per_page=5"
            exact = (await request_json(own_api, "GET", place))[1]
            assert exact["meta"]["total"] == 31 and "total_is_exact" not in exact["meta"]
            for page, count_to, total, is_exact in (
                (1, 10, 11, False),
                (1, 30, 31, False),
                (1, 31, 31, True),
                (1, 1000, 31, True),
                (4, 10, 21, False),
                (7, 10, 31, True),
                (9, 10, 31, True),
            ):
                path = f"{place}&page={page}&count_to={count_to}"
                found = (await request_json(own_api, "GET", path))[1]
                meta = found["meta"]
                assert (meta["total"], meta["total_is_exact"]) == (total, is_exact), path
                if sort == "-id":
                    shown = [record["id"] for record in found["data"]]
                    assert shown == ids[5 * page - 5 : 5 * page], path
                if page < 7:
                    assert f"count_to={count_to}" in meta["next_page_url"]


@pytest.mark.parametrize(
    "place", ["/api/invoices", "/api/adjustment-notes", "/api/consolidated-invoices"]
)
async def test_count_to_leaves_the_total_of_other_lists_exact(
    start: StartService, environment: dict[str, str], place: str
) -> None:
    api = await start(await make_company(environment), **GENEROUS)
    await create_one_of_each(api)
    if place == "/api/invoices":
        await create_invoice(api)
    for query in ("", "&status=Draft", "&query=aminah", "&issued_from=2020-01-01"):
        exact = (await request_json(api, "GET", f"{place}?per_page=1{query}"))[1]
        bounded = (await request_json(api, "GET", f"{place}?per_page=1{query}&count_to=100"))[1]
        assert bounded["data"] == exact["data"]
        assert bounded["meta"]["total"] == exact["meta"]["total"]
        assert bounded["meta"]["total_is_exact"] is True


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1000001", "many", "\u0661"])
async def test_an_invalid_count_to_is_a_violation(api: Client, text: str) -> None:
    body = await expect(api, 422, "GET", "/api/invoices", params={"count_to": text})
    assert list_rules(body) == [("count_to", "range")]
