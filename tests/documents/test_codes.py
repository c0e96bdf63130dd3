"""Known codes, suggestions for unknown codes, and the paths of unknown codes in a body."""

from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import datetime
from typing import Any

import pytest

from service.documents import codes

Import = Callable[[str, dict[str, str]], None]


@pytest.fixture
def imported() -> Iterator[Import]:
    """Yield a function that imports a table for one test."""
    yield lambda name, names: codes.replace_tables(
        [codes.add_built_in(codes.CodeTable(name, names, datetime(2026, 3, 2).date()))]
    )
    codes.replace_tables([])


def line(**changes: Any) -> dict[str, Any]:
    item = {"classifications": ["022"], "unit": {"code": "H87"}, "taxDetails": [{"taxType": "01"}]}
    return {**item, "originCountry": "MYS", **changes}


def paths(body: dict[str, Any], *places: Any) -> list[str]:
    return [violation["path"] for violation in codes.find_violations(body, *places)]


@pytest.mark.parametrize(
    "table, size",
    [
        ("states", 17),
        ("classifications", 45),
        ("tax_types", 7),
        ("payment_modes", 8),
        ("document_types", 8),
        ("countries", 253),
        ("currencies", 180),
        ("party_types", 6),
        ("registration_types", 4),
        ("units", 2163),
        ("msic", 1174),
    ],
)
def test_built_in_tables_are_complete(table: str, size: int) -> None:
    assert len(codes.get_names(table)) == size


def test_codes_are_compared_exactly() -> None:
    assert codes.is_known("states", "01")
    assert not codes.is_known("states", "1")
    assert not codes.is_known("countries", "mys")


@pytest.mark.parametrize(
    "table, code, is_known",
    [
        ("units", "H87", True),
        ("units", "GT", True),  # of the authority's page, not of its file
        ("units", "h87", False),
        ("units", "PCS", False),
        ("msic", "00000", True),
        ("msic", "31001", True),
        ("msic", "3100", False),
        ("msic", "٣١٠٠١", False),
    ],
)
def test_units_and_industries_are_known(table: str, code: str, is_known: bool) -> None:
    assert codes.is_known(table, code) is is_known


def test_imported_codes_join_the_built_in_ones(imported: Import) -> None:
    imported("units", {"H87": "item", "ZZX": "crate"})
    assert codes.is_known("units", "ZZX") and codes.is_known("units", "KGM")
    assert codes.get_names("units")["H87"] == "item"
    assert list(codes.get_names("units")) == sorted(codes.get_names("units"))


def test_importing_an_unknown_table_fails(imported: Import) -> None:
    with pytest.raises(KeyError):
        imported("colours", {"R": "red"})


def test_pinned_tables_do_not_change_with_an_import(imported: Import) -> None:
    with codes.one_version():
        imported("units", {"ZZX": "crate"})
        assert not codes.is_known("units", "ZZX")
    assert codes.is_known("units", "ZZX")


def test_nearest_code_is_one_of_the_latest_import(imported: Import) -> None:
    imported("units", {"ZZX": "crate of tests"})
    assert codes.find_nearest("units", "crate of tests") == "ZZX"
    imported("units", {"ZZY": "crate of tests"})
    assert codes.find_nearest("units", "crate of tests") == "ZZY"


@pytest.mark.parametrize(
    "table, meant",
    {
        "states": {
            "Johor": "01",
            "1": "01",
            "Penang": "07",
            "Selanggor": "10",
            "Kuala Lumpur": "14",
        },
        "countries": {
            "MY": "MYS",
            "mys": "MYS",
            "United States": "USA",
            "": None,
            "M" * 10**6: None,
        },
        "currencies": {"rm": "MYR"},
        "tax_types": {"service tax": "02"},
        "party_types": {"individual": "LOCAL_INDIVIDUAL"},
        "units": {"pcs": "H87"},
    }.items(),
)
def test_nearest_code_is_suggested(table: str, meant: dict[str, str | None]) -> None:
    assert {written: codes.find_nearest(table, written) for written in meant} == meant


def test_similar_codes_are_searched_for_five_texts_of_a_request() -> None:
    wrong = [f"Selanggor{number}" for number in range(9)]

    def search(texts: list[str]) -> list[str | None]:
        codes.pin_tables()
        return [codes.find_nearest("states", text) for text in texts]

    run = copy_context().run
    assert run(search, wrong) == ["10"] * 5 + [None] * 4
    assert run(search, wrong[:1] * 50) == ["10"] * 50
    assert run(search, [*wrong, "Johor", "1", "Penang"])[9:] == ["01", "01", "07"]
    assert run(search, ["Selangor" + "r" * 23]) == [None]


def make_party(kind: str, scheme: str, msic: str, state: str) -> dict[str, Any]:
    registration, address = {"type": scheme}, {"state": state, "country": "MYS"}
    return {"type": kind, "registration": registration, "msic": msic, "address": address}


def test_violation_names_the_path_table_and_nearest_code() -> None:
    violation = {
        "path": "/lineItems/1/originCountry",
        "rule": "code",
        "message": '"MY" is not in the table of countries; the nearest code is "MYS" (MALAYSIA).',
    }
    assert codes.find_violations({"lineItems": [line(), line(originCountry="MY")]}) == [violation]


def test_every_unknown_code_of_a_body_is_found() -> None:
    party = make_party("PERSON", "IC", "1", "99")
    item = line(
        classifications=["022", "999"],
        unit={"code": "piece"},
        taxDetails=[{"taxType": "01"}, {"taxType": "9"}],
    )
    assert paths({"currencyCode": "RM", "buyer": party, "lineItems": [item]}) == [
        "/currencyCode",
        "/buyer/type",
        "/buyer/registration/type",
        "/buyer/msic",
        "/buyer/address/state",
        "/lineItems/0/classifications/1",
        "/lineItems/0/unit/code",
        "/lineItems/0/taxDetails/1/taxType",
    ]


def test_state_outside_malaysia_is_free_text() -> None:
    assert paths({"buyer": {"address": {"state": "Guangdong", "country": "CHN"}}}) == []


@pytest.mark.parametrize("country", [{}, {"country": "MYS"}])
def test_state_in_malaysia_is_a_code(country: dict[str, Any]) -> None:
    expected = ["/buyer/address/state"]
    assert paths({"buyer": {"address": {"state": "Guangdong", **country}}}) == expected


def test_parties_and_companies_are_checked_at_their_own_paths() -> None:
    assert paths({"type": "PERSON"}, codes.PARTY) == ["/type"]
    assert paths({"country": "CHN", "state": "Guangdong", "msic_code": "x"}, codes.COMPANY) == [
        "/msic_code"
    ]


def test_at_most_fifty_unknown_codes_are_reported() -> None:
    body = {"lineItems": [line(originCountry=f"{number}" * 30_000) for number in range(1000)]}
    violations = codes.find_violations(body)
    assert len(violations) == 50
    assert max(len(violation["message"]) for violation in violations) < 200
