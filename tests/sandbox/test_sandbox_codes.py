"""Code lists in the sandbox: validity dates, state 17 and given lists."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.fixtures_sandbox import SUPPLIER, Portal, element, identifications, put
from tests.sandbox.test_sandbox_rules import CUSTOMER, ITEM, PUBLIC, SELLER, step_codes

CLASSIFICATION = f"{ITEM}.CommodityClassification.0.ItemClassificationCode.0._"
STATE, COUNTRY = (
    "PostalAddress.0.CountrySubentityCode.0._",
    "PostalAddress.0.Country.0.IdentificationCode.0._",
)


async def set_dates(portal: Portal, list_name: str, code: str, **ends: Any) -> None:
    body = {"list": list_name, "code": code, **ends}
    answer = await portal.http.put("/_sandbox/codes", json=body)
    assert answer.status == 200, await answer.text()


@pytest.mark.parametrize(
    "ends, found",
    [
        ({"from": -60}, {}),
        ({"from": -59}, {"04": ["CF320"]}),
        ({"to": -60}, {"04": ["CF320"]}),
        ({"to": -59}, {}),
        ({"from": -7200, "to": -3600}, {"04": ["CF320"]}),
        ({}, {}),
    ],
)
async def test_a_code_is_valid_within_its_dates(
    portal: Portal, ends: dict[str, Any], found: dict[str, Any]
) -> None:
    """Compare with the issue time, 60 seconds ago. `from` is inclusive, `to` is exclusive."""
    sent = put(await portal.fresh(), CLASSIFICATION, "046")
    issued = sent["Invoice"][0]["IssueDate"][0]["_"] + "T" + sent["Invoice"][0]["IssueTime"][0]["_"]
    dates: dict[str, Any] = {end: shift(issued, 60 + at) for end, at in ends.items()}
    await set_dates(portal, "classifications", "046", **dates)
    assert await step_codes(portal, sent) == found


def shift(instant: str, seconds: float) -> str:
    return (datetime.fromisoformat(instant) + timedelta(seconds=seconds)).isoformat()


async def test_state_00_was_retired(portal: Portal) -> None:
    assert await step_codes(portal, put(await portal.fresh(), f"{CUSTOMER}.{STATE}", "00")) == {
        "04": ["CF320"]
    }


@pytest.mark.parametrize(
    "body", [{"list": "party_types"}, {"list": ["units"]}, {"code": 1}, {"from": "soon"}, {"to": 5}]
)
async def test_invalid_validity_dates_of_a_code_are_refused(
    portal: Portal, body: dict[str, Any]
) -> None:
    sent = {"list": "units", "code": "XQZ", **body}
    assert (await portal.http.put("/_sandbox/codes", json=sent)).status == 400


async def give_list(portal: Portal, name: str, *codes: dict[str, Any]) -> None:
    body = {"list": name, "codes": codes}
    answer = await portal.http.put("/_sandbox/code-lists", json=body)
    assert answer.status == 200, await answer.text()


async def test_units_and_msic_are_checked_by_format(portal: Portal) -> None:
    root = put(await portal.fresh(), "InvoiceLine.0.InvoicedQuantity.0.unitCode", "C62")
    found = await step_codes(portal, put(root, f"{SELLER}.IndustryClassificationCode.0._", "31002"))
    assert found == {}


async def test_units_and_msic_are_checked_against_given_lists(portal: Portal) -> None:
    await give_list(portal, "units", {"code": "H87"})
    await give_list(portal, "msic", {"code": "31001"})
    root = put(await portal.fresh(), "InvoiceLine.0.InvoicedQuantity.0.unitCode", "C62")
    root = put(root, f"{SELLER}.IndustryClassificationCode.0._", "31002")
    assert await step_codes(portal, root) == {"04": ["CV302", "CV302"]}
    assert await step_codes(portal, await portal.fresh("INV-2")) == {}


async def test_a_code_of_a_given_list_is_valid_within_its_dates(portal: Portal) -> None:
    await give_list(portal, "units", {"code": "H87", "from": "2099-01-01T00:00:00+08:00"})
    assert await step_codes(portal, await portal.fresh()) == {"04": ["CF320"]}
    await give_list(portal, "units", {"code": "H87", "from": "2020-01-01"})
    assert await step_codes(portal, await portal.fresh("INV-2")) == {}


async def test_reset_removes_given_lists(portal: Portal) -> None:
    await give_list(portal, "units", {"code": "KGM"})
    assert await step_codes(portal, await portal.fresh()) == {"04": ["CV302"]}
    await portal.http.post("/_sandbox/reset")
    await portal.login()
    assert await step_codes(portal, await portal.fresh()) == {}


@pytest.mark.parametrize(
    "body",
    [
        {"list": "colours"},
        {"list": 7},
        {"codes": None},
        {"codes": {"code": "H87"}},
        {"codes": ["H87"]},
        {"codes": [{"from": "2020-01-01"}]},
        {"codes": [{"code": "H87", "to": "soon"}]},
    ],
)
async def test_an_invalid_code_list_is_refused(portal: Portal, body: dict[str, Any]) -> None:
    sent = {"list": "units", "codes": [{"code": "KGM"}], **body}
    assert (await portal.http.put("/_sandbox/code-lists", json=sent)).status == 400
    assert await step_codes(portal, await portal.fresh()) == {}


@pytest.mark.parametrize("state", ["17", "Guangdong"])
async def test_an_address_abroad_has_state_17_or_text(portal: Portal, state: str) -> None:
    root = put(await portal.fresh(), f"{CUSTOMER}.{COUNTRY}", "CHN")
    assert await step_codes(portal, put(root, f"{CUSTOMER}.{STATE}", state)) == {}


async def consolidated_document(
    portal: Portal, number: str = "C-1", tins: Any = PUBLIC
) -> dict[str, Any]:
    root = put(await portal.fresh(number), f"{CUSTOMER}.PartyIdentification", tins)
    put(root, f"{CUSTOMER}.Contact.0.Telephone.0._", "NA")
    put(root, f"{CUSTOMER}.{STATE}", "17")
    return put(root, CLASSIFICATION, "004")


async def test_a_consolidated_document_may_have_state_17_in_malaysia(portal: Portal) -> None:
    assert await step_codes(portal, await consolidated_document(portal)) == {}


async def test_state_17_can_be_refused_in_consolidated_documents_too(portal: Portal) -> None:
    await portal.admin("settings", consolidated_state_17=False)
    assert await step_codes(portal, await consolidated_document(portal)) == {"04": ["CV317"]}
    blank = put(await consolidated_document(portal, "C-2"), f"{CUSTOMER}.{STATE}", "")
    assert await step_codes(portal, blank) == {}


async def test_the_public_of_a_consolidated_document_has_one_tin(portal: Portal) -> None:
    for index, tin in enumerate(("EI00000000020", "EI00000000040")):
        root = await consolidated_document(portal, f"C-{index}", identifications(TIN=tin, BRN="NA"))
        put(root, f"{CUSTOMER}.Contact.0.Telephone.0._", "+60388000000")
        assert await step_codes(portal, root) == {"05": ["ERR245"]}


async def test_the_public_of_a_consolidated_self_billed_document_is_its_supplier(
    portal: Portal,
) -> None:
    root = put(await portal.fresh(type_code="11"), CLASSIFICATION, "004")
    put(root, f"{CUSTOMER}.PartyIdentification", identifications(TIN=SUPPLIER, BRN="201801024680"))
    put(root, f"{SELLER}.IndustryClassificationCode", element("00000", name="NOT APPLICABLE"))
    assert await step_codes(portal, put(root, f"{SELLER}.PartyIdentification", PUBLIC)) == {}
