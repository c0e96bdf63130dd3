"""Code lists in the sandbox: when a code holds, state 17 both ways, and lists that were loaded."""

from datetime import datetime, timedelta

import pytest
from test_sandbox_kit import SUPPLIER, element, identifications, portal, put, settings  # noqa: F401
from test_sandbox_rules import CUSTOMER, ITEM, PUBLIC, SELLER, step_codes

from service.documents.codes import TABLES

CLASSIFICATION = f"{ITEM}.CommodityClassification.0.ItemClassificationCode.0._"
STATE, COUNTRY = (
    "PostalAddress.0.CountrySubentityCode.0._",
    "PostalAddress.0.Country.0.IdentificationCode.0._",
)


async def dated(portal, list, code, status=200, **ends):
    answer = await portal.http.put("/_sandbox/codes", json={"list": list, "code": code, **ends})
    assert answer.status == status, await answer.text()


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
async def test_a_code_holds_for_a_time(portal, ends, found):
    """Against the issue date and time, which is 60 seconds ago; from is included, to is not."""
    sent = put(await portal.fresh(), CLASSIFICATION, "046")
    issued = sent["Invoice"][0]["IssueDate"][0]["_"] + "T" + sent["Invoice"][0]["IssueTime"][0]["_"]
    await dated(
        portal,
        "classifications",
        "046",
        **{end: shifted(issued, 60 + at) for end, at in ends.items()},
    )
    assert await step_codes(portal, sent) == found


def shifted(instant, seconds):
    return (datetime.fromisoformat(instant) + timedelta(seconds=seconds)).isoformat()


async def test_a_listed_code_can_end(portal):
    await dated(portal, "currencies", "MYR", to="2020-01-01")
    assert await step_codes(portal, await portal.fresh()) == {"04": ["CF320", "CF320"]}
    await dated(portal, "currencies", "MYR")
    assert await step_codes(portal, await portal.fresh("INV-2")) == {}


async def test_state_00_was_retired(portal):
    assert await step_codes(portal, put(await portal.fresh(), f"{CUSTOMER}.{STATE}", "00")) == {
        "04": ["CF320"]
    }


@pytest.mark.parametrize(
    "body", [{"list": "party_types"}, {"list": ["units"]}, {"code": 1}, {"from": "soon"}, {"to": 5}]
)
async def test_a_date_of_a_code_that_is_no_date_of_a_code(portal, body):
    await dated(portal, **{"list": "units", "code": "XQZ", **body}, status=400)


@pytest.fixture
def loaded(monkeypatch):
    """The long lists, which are judged by form until they are there."""
    monkeypatch.setitem(TABLES, "units", {"H87": "piece"})
    monkeypatch.setitem(TABLES, "msic", {"31001": "Furniture"})


async def test_units_and_msic_are_judged_by_form(portal):
    root = put(await portal.fresh(), "InvoiceLine.0.InvoicedQuantity.0.unitCode", "C62")
    assert (
        await step_codes(portal, put(root, f"{SELLER}.IndustryClassificationCode.0._", "31002"))
        == {}
    )


async def test_units_and_msic_are_judged_by_their_lists(portal, loaded):
    root = put(await portal.fresh(), "InvoiceLine.0.InvoicedQuantity.0.unitCode", "C62")
    root = put(root, f"{SELLER}.IndustryClassificationCode.0._", "31002")
    assert await step_codes(portal, root) == {"04": ["CV302", "CV302"]}
    assert await step_codes(portal, await portal.fresh("INV-2")) == {}


async def test_a_malaysian_state_belongs_to_malaysia(portal):
    assert await step_codes(portal, put(await portal.fresh(), f"{CUSTOMER}.{COUNTRY}", "SGP")) == {
        "04": ["CV316"]
    }


@pytest.mark.parametrize("state", ["17", "Guangdong"])
async def test_an_address_abroad_has_state_17_or_text(portal, state):
    root = put(await portal.fresh(), f"{CUSTOMER}.{COUNTRY}", "CHN")
    assert await step_codes(portal, put(root, f"{CUSTOMER}.{STATE}", state)) == {}


async def consolidated(portal, number="C-1", tins=PUBLIC):
    root = put(await portal.fresh(number), f"{CUSTOMER}.PartyIdentification", tins)
    put(root, f"{CUSTOMER}.Contact.0.Telephone.0._", "NA")
    put(root, f"{CUSTOMER}.{STATE}", "17")
    return put(root, CLASSIFICATION, "004")


async def test_state_17_in_malaysia_is_for_consolidated_documents(portal):
    assert await step_codes(portal, put(await portal.fresh(), f"{CUSTOMER}.{STATE}", "17")) == {
        "04": ["CV317"]
    }
    assert await step_codes(portal, await consolidated(portal)) == {}


async def test_state_17_can_be_refused_in_consolidated_documents_too(portal):
    await portal.admin("settings", consolidated_state_17=False)
    assert await step_codes(portal, await consolidated(portal)) == {"04": ["CV317"]}
    blank = put(await consolidated(portal, "C-2"), f"{CUSTOMER}.{STATE}", "")
    assert await step_codes(portal, blank) == {}


async def test_the_public_of_a_consolidated_document_has_one_tin(portal):
    for index, tin in enumerate(("EI00000000020", "EI00000000040")):
        root = await consolidated(portal, f"C-{index}", identifications(TIN=tin, BRN="NA"))
        assert await step_codes(portal, root) == {"05": ["ERR245"]}


async def test_the_public_of_a_consolidated_self_billed_document_is_its_supplier(portal):
    root = put(await portal.fresh(type="11"), CLASSIFICATION, "004")
    put(root, f"{CUSTOMER}.PartyIdentification", identifications(TIN=SUPPLIER, BRN="201801024680"))
    put(root, f"{SELLER}.IndustryClassificationCode", element("00000", name="NOT APPLICABLE"))
    assert await step_codes(portal, put(root, f"{SELLER}.PartyIdentification", PUBLIC)) == {}
