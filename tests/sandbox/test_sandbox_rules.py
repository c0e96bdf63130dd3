"""The sandbox's validators: each change to a valid document causes one finding."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from service.sandbox import validators
from tests.fixtures_sandbox import (
    BUYER,
    HOUR,
    SUPPLIER,
    Portal,
    document,
    element,
    identifications,
    money,
    put,
)

SELLER, CUSTOMER = "AccountingSupplierParty.0.Party.0", "AccountingCustomerParty.0.Party.0"
ITEM = "InvoiceLine.0.Item.0"
PUBLIC = identifications(TIN="EI00000000010", BRN="NA", SST="NA", TTX="NA")


async def findings(portal: Portal, document: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return (code, target) of each finding of the immediate checks."""
    return [
        (each["code"], each["target"])
        for rejected in (await (await portal.submit(document)).json())["rejectedDocuments"]
        for each in rejected["error"]["details"]
    ]


TAX = "#/Invoice[0].TaxTotal[0].TaxAmount[0]"


@pytest.mark.parametrize(
    "path, value, broken",
    [
        ("IssueDate", None, "PropertyRequired: #/Invoice[0].IssueDate"),
        ("InvoiceLine", [], "TooFewItems: #/Invoice[0].InvoiceLine"),
        ("InvoiceLine", {}, "ArrayExpected: #/Invoice[0].InvoiceLine"),
        ("DocumentCurrencyCode", [None], "ObjectExpected: #/Invoice[0].DocumentCurrencyCode[0]"),
        ("IssueDate", element(""), "DateExpected: #/Invoice[0].IssueDate[0]._"),
        ("IssueDate", element("2026-02-30"), "DateExpected: #/Invoice[0].IssueDate[0]._"),
        ("IssueTime", element("10:00:00"), "TimeExpected: #/Invoice[0].IssueTime[0]._"),
        ("TaxTotal.0.TaxAmount", money("0"), f"NumberExpected: {TAX}._"),
        ("TaxTotal.0.TaxAmount", element(0), f"PropertyRequired: {TAX}.currencyID"),
        ("TaxTotal.0.TaxAmount", money(True), f"NumberExpected: {TAX}._"),
        ("InvoiceTypeCode", element("01", listVersionID=1), "version"),
        ("InvoiceTypeCode", element("05", listVersionID="1.0"), "type"),
        ("InvoiceTypeCode", element("01", listVersionID="2.0"), "version"),
        (
            "InvoiceTypeCode",
            element("01", listVersionID="1.1"),
            "TooFewItems: #/Invoice[0].UBLExtensions",
        ),
        ("Surprise", element("x"), "NoAdditionalPropertiesAllowed: #/Invoice[0].Surprise"),
        (
            f"{CUSTOMER}.Contact",
            [{}],
            "TooFewProperties: #/Invoice[0].AccountingCustomerParty[0].Party[0].Contact[0]",
        ),
        (
            "AllowanceCharge",
            [{"ChargeIndicator": element("false"), "Amount": money(1)}],
            "BooleanExpected",
        ),
    ],
)
async def test_an_invalid_structure_is_rejected_at_once(
    portal: Portal, path: str, value: Any, broken: str
) -> None:
    changed = put(document("A", await portal.now(-60)), path, value)
    (rejected,) = (await (await portal.submit(changed)).json())["rejectedDocuments"]
    assert broken in rejected["error"]["details"][0]["message"]


@pytest.mark.parametrize(
    "age, found", [(-60, True), (72 * HOUR + 60, True), (72 * HOUR - 60, False), (0, False)]
)
async def test_a_document_from_the_future_or_too_old_is_rejected(
    portal: Portal, age: Any, found: bool
) -> None:
    codes = [code for code, _ in await findings(portal, await portal.fresh("A", age=age))]
    assert codes == (["CF321"] if found else [])


#: An address of a recipient in Malaysia.
AT_SIX_DIGITS = {
    "PostalZone": element("401500"),
    "CountrySubentityCode": element("10"),
    "Country": [{"IdentificationCode": element("MYS")}],
}
IN_A_LONG_CITY = {**AT_SIX_DIGITS, "PostalZone": element("40150"), "CityName": element("x" * 51)}


@pytest.mark.parametrize(
    "path, value, code",
    [
        (f"{SELLER}.PartyLegalEntity", None, "CF334"),
        (f"{SELLER}.PostalAddress.0.CityName", None, "CF339"),
        (f"{CUSTOMER}.PostalAddress.0.CityName.0._", " ", "CF340"),
        (f"{SELLER}.PostalAddress.0.CountrySubentityCode", None, "CF342"),
        (f"{SELLER}.PostalAddress.0.AddressLine", None, "CF345"),
        (f"{SELLER}.PostalAddress.0.AddressLine.1.Line.0._", "x" * 151, "CF345"),
        (f"{SELLER}.Contact.0.Telephone", None, "CF348"),
        (f"{ITEM}.CommodityClassification.0.ItemClassificationCode.0.listID", "PTC", "CF364"),
        (f"{CUSTOMER}.PartyIdentification", identifications(BRN="202101033579"), "CF358"),
        (f"{CUSTOMER}.PartyIdentification", identifications(TIN=BUYER, NRIC="12"), "CF324"),
        (f"{CUSTOMER}.PartyIdentification", identifications(TIN=BUYER), None),
        (
            f"{CUSTOMER}.PartyIdentification",
            identifications(TIN=BUYER, BRN="1", NRIC="880214145566"),
            None,
        ),
        (
            f"{CUSTOMER}.PartyIdentification",
            identifications(TIN=BUYER, BRN="1", TTX="a/b"),
            "CF407",
        ),
        (f"{SELLER}.Contact.0.Telephone.0._", "06-987 1234", "CF410"),
        (f"{SELLER}.Contact.0.Telephone.0._", "1234567", "CF366"),
        (f"{CUSTOMER}.Contact.0.Telephone.0._", "1" * 21, "CF366"),
        (f"{SELLER}.Contact.0.ElectronicMail.0._", "a@c.example.", "CF404"),
        (f"{CUSTOMER}.Contact.0.Telephone.0._", "NA", "CF410"),
        (f"{SELLER}.Contact.0.ElectronicMail.0._", "a@b.example, c@d.example", "CF403"),
        (f"{SELLER}.Contact.0.ElectronicMail.0._", f"{'x' * 311}@b.example", "CF401"),
        (
            f"{CUSTOMER}.PartyIdentification",
            identifications(TIN="C" + "1" * 14, BRN="202101033579"),
            "CF358",
        ),
        (f"{SELLER}.IndustryClassificationCode.0.name", " ", None),
        (f"{SELLER}.PostalAddress.0.PostalZone.0._", "840001", None),
        ("Delivery", [{"DeliveryParty": [{"PostalAddress": [AT_SIX_DIGITS]}]}], None),
        ("Delivery", [{"DeliveryParty": [{"PostalAddress": [IN_A_LONG_CITY]}]}], None),
        (f"{ITEM}.Description", None, None),
    ],
)
async def test_an_invalid_core_field_is_rejected_at_once(
    portal: Portal, path: str, value: Any, code: str | None
) -> None:
    found = await findings(portal, put(document("A", await portal.now(-60)), path, value))
    assert [each for each, _ in found] == [code]


REFERENCES = [
    {"ID": element("CIF")},
    {"ID": element("K1-2209/7"), "DocumentType": element("CustomsImportForm")},
]


@pytest.mark.parametrize(
    "path, value",
    [
        ("AdditionalDocumentReference", REFERENCES),
        (f"{SELLER}.Contact.0.Telephone.0._", "NA"),
        (f"{SELLER}.Contact.0.ElectronicMail.0._", "a.b-c@d.example"),
        (f"{CUSTOMER}.PostalAddress.0.AddressLine.0.Line.0._", "NA"),
    ],
)
async def test_an_unusual_core_field_is_valid(portal: Portal, path: str, value: Any) -> None:
    assert await step_codes(portal, put(await portal.fresh(), path, value)) == {}


async def test_a_blank_address_with_line_na_and_a_state_is_valid(portal: Portal) -> None:
    root = put(await portal.fresh(), f"{CUSTOMER}.PostalAddress.0.AddressLine.0.Line.0._", "NA")
    for name in ("CityName", "PostalZone", "Country"):
        put(root, f"{CUSTOMER}.PostalAddress.0.{name}", None)
    assert await step_codes(portal, root) == {}
    put(root, f"{CUSTOMER}.PostalAddress.0.CountrySubentityCode", None)
    assert [code for code, _ in await findings(portal, root)] == ["CF343"]


async def test_the_general_public_has_neither_phone_nor_e_mail(portal: Portal) -> None:
    root = put(await portal.fresh(), f"{CUSTOMER}.PartyIdentification", PUBLIC)
    put(root, f"{ITEM}.CommodityClassification.0.ItemClassificationCode.0._", "004")
    put(
        root, f"{CUSTOMER}.Contact", [{"Telephone": element("NA"), "ElectronicMail": element("NA")}]
    )
    assert await step_codes(portal, root) == {}


@pytest.mark.parametrize(
    "reason, found", [("No:(C01-2345/67)", []), ("Order, 14 - (A).", []), ("Order #14", [None] * 2)]
)
async def test_an_exemption_reason_has_few_special_characters(
    portal: Portal, reason: str, found: list[None]
) -> None:
    root = await portal.fresh()
    for path in ("TaxTotal", "InvoiceLine.0.TaxTotal"):
        category = f"{path}.0.TaxSubtotal.0.TaxCategory.0"
        put(root, f"{category}.ID.0._", "E")
        put(root, f"{category}.TaxExemptionReason", element(reason))
    assert [code for code, _ in await findings(portal, root)] == found


async def test_all_violations_of_core_fields_are_returned(portal: Portal) -> None:
    changed = put(await portal.fresh(), f"{CUSTOMER}.PostalAddress", None)
    assert {code for code, _ in await findings(portal, changed)} == {
        "CF337",
        "CF340",
        "CF343",
        "CF346",
    }


async def test_a_number_may_have_fifty_characters(portal: Portal) -> None:
    await portal.accepted(await portal.fresh("x" * 50))
    assert await findings(portal, await portal.fresh("x" * 51)) == [(None, "ID")]


async def step_codes(portal: Portal, document: dict[str, Any]) -> dict[str, list[str]]:
    """Submit a document that is accepted, and return {step number: codes of its findings}."""
    results = (await portal.details(await portal.accepted(document)))["validationResults"]
    found = {
        step["name"][4:6]: [each["errorCode"] for each in step["error"]["innerError"]]
        for step in results["validationSteps"]
        if step["status"] == "Invalid"
    }
    assert results["status"] == ("Invalid" if found else "Valid")
    return found


@pytest.mark.parametrize(
    "path, value, code",
    [
        ("InvoiceLine.0.InvoicedQuantity.0.unitCode", "pcs", "CV302"),
        (f"{SELLER}.IndustryClassificationCode.0._", "3100", "CV302"),
        ("TaxTotal.0.TaxSubtotal.0.TaxCategory.0.ID.0._", "09", "CV302"),
        ("InvoiceLine.0.TaxTotal.0.TaxSubtotal.0.TaxCategory.0.ID.0._", "e", "CV302"),
        ("PaymentMeans", [{"PaymentMeansCode": element("3")}], "CV302"),
        (f"{CUSTOMER}.PostalAddress.0.Country.0.IdentificationCode.0._", "MY", "CV302"),
    ],
)
async def test_an_invalid_code_fails_step_4(
    portal: Portal, path: str, value: Any, code: str
) -> None:
    assert await step_codes(portal, put(await portal.fresh(), path, value)) == {"04": [code]}


async def test_an_invalid_code_is_reported_in_the_portals_shape(portal: Portal) -> None:
    changed = put(
        await portal.fresh(), f"{CUSTOMER}.PostalAddress.0.CountrySubentityCode.0._", "88"
    )
    details = await portal.details(await portal.accepted(changed))
    assert (details["status"], details["longId"]) == ("Invalid", "")
    assert details["dateTimeValidated"]
    first, second, *_ = details["validationResults"]["validationSteps"]
    assert first == {"status": "Valid", "name": "Step03-Duplicated Submission Validator"}
    assert second["name"] == "Step04-Code Field Validator"
    assert second["error"]["errorCode"] == "Error04"
    assert second["error"]["error"] == "Step04-Invalid Code Field Validator"
    (inner,) = second["error"]["innerError"]
    assert inner["error"] == "Value 88 is not in the list of state codes."
    assert inner["propertyPath"] == (
        "$.Invoice[*].AccountingCustomerParty[*].Party[*].PostalAddress[*].CountrySubentityCode[*]._"
    )
    assert (await portal.call("GET", f"/documents/{details['uuid']}/raw")).status == 404


@pytest.mark.parametrize(
    "identity, code",
    [
        (identifications(TIN=BUYER, BRN="202101033570"), "ERR206"),
        (identifications(TIN=BUYER, NRIC="000000000000"), None),
        (identifications(TIN="IG40125678090", NRIC="880214145566"), None),
        (identifications(TIN="IG40125678090", NRIC="880214145560"), "ERR206"),
        (identifications(TIN="C1", BRN="202101033579"), "ERR406"),
        (identifications(TIN="C9999999990", BRN="202101033579"), None),
        (identifications(TIN="EI00000000010", BRN="202101033579"), "Error05"),
        (identifications(TIN="EI00000000010", NRIC="880214145566"), None),
        (identifications(TIN="EI00000000020", PASSPORT="A1"), None),
    ],
)
async def test_an_unknown_taxpayer_fails_step_5(
    portal: Portal, identity: Any, code: str | None
) -> None:
    changed = put(await portal.fresh(), f"{CUSTOMER}.PartyIdentification", identity)
    assert await step_codes(portal, changed) == ({"05": [code]} if code else {})


async def test_a_strict_register_refuses_an_unregistered_buyer(portal: Portal) -> None:
    await portal.admin("settings", strict_register=True)
    stranger = identifications(TIN="C9999999990", BRN="202101033579")
    changed = put(await portal.fresh(), f"{CUSTOMER}.PartyIdentification", stranger)
    assert await step_codes(portal, changed) == {"05": ["ERR406"]}


OTHER = {"client_id": "other", "client_secret": "s", "tin": "C2084716530", "intermediary": True}


@pytest.mark.parametrize(
    "path, change",
    [
        ("clients", {**OTHER, "blocked": True}),
        ("clients", {**OTHER, "represents": [BUYER]}),
        ("clients", {**OTHER, "intermediary": False}),
        ("taxpayers", {"tin": OTHER["tin"], "blocked": True}),
    ],
)
async def test_a_document_of_an_intermediary_without_permission_is_invalid(
    portal: Portal, path: str, change: dict[str, Any]
) -> None:
    """The permission at the time of validation decides."""
    await portal.admin("clients", **OTHER)
    await portal.login(SUPPLIER, "other", "s")
    assert await step_codes(portal, await portal.fresh("A")) == {}
    await portal.admin(path, **change)
    assert await step_codes(portal, await portal.fresh("B")) == {"05": ["Error05"]}


async def test_a_document_of_a_blocked_taxpayer_is_invalid(portal: Portal) -> None:
    await portal.admin("taxpayers", tin=BUYER, name="Tiga Rasa", blocked=True)
    assert await step_codes(portal, await portal.fresh()) == {"05": ["Error05"]}


async def self_billed(portal: Portal, tin: str = "EI00000000030") -> dict[str, Any]:
    """Return a self-billed invoice of the taxpayer that is logged in, for a seller abroad."""
    root = await portal.fresh(type_code="11")
    put(root, f"{CUSTOMER}.PartyIdentification", identifications(TIN=SUPPLIER, BRN="201801024680"))
    put(root, f"{SELLER}.PartyIdentification", identifications(TIN=tin, BRN="NA"))
    put(root, f"{SELLER}.PostalAddress.0.CountrySubentityCode.0._", "17")
    return put(root, f"{SELLER}.PostalAddress.0.Country.0.IdentificationCode.0._", "CHN")


async def test_the_issuer_of_a_self_billed_document_is_its_buyer(portal: Portal) -> None:
    details = await portal.details(await portal.accepted(await self_billed(portal)))
    assert details["status"] == "Valid"
    assert (details["issuerTin"], details["receiverId"]) == (SUPPLIER, "NA")


async def test_a_foreign_seller_with_the_general_buyer_tin_is_invalid(portal: Portal) -> None:
    expected = {"05": ["ERR208"]}
    assert await step_codes(portal, await self_billed(portal, "EI00000000020")) == expected


async def test_a_document_of_the_same_identity_is_a_duplicate_for_two_hours(
    portal: Portal,
) -> None:
    first, again = await portal.fresh(), None
    uuid = await portal.accepted(first)
    again = put(first, f"{ITEM}.Description.0._", "Another chair")
    details = await portal.details(await portal.accepted(again))
    (found,) = details["validationResults"]["validationSteps"][0]["error"]["innerError"]
    assert found["errorCode"] == "DV302" and uuid in found["error"]
    await portal.admin("clock", seconds=2 * HOUR + 1)
    await portal.login()
    assert await step_codes(portal, put(first, f"{ITEM}.Description.0._", "A third chair")) == {}


async def test_duplicate_detection_can_be_disabled(portal: Portal) -> None:
    await portal.admin("settings", duplicate_detection=False, payload_detection=False)
    sent = await portal.fresh()
    assert [await step_codes(portal, sent) for _ in range(2)] == [{}, {}]


async def test_an_invalid_document_has_duplicates(portal: Portal) -> None:
    sent = put(await portal.fresh(), "InvoiceLine.0.InvoicedQuantity.0.unitCode", "pcs")
    await portal.accepted(sent)
    again = put(sent, "InvoiceLine.0.InvoicedQuantity.0.unitCode", "H87")
    assert await step_codes(portal, again) == {"03": ["DV302"]}


async def test_a_document_with_another_issue_time_is_no_duplicate(portal: Portal) -> None:
    await portal.accepted(await portal.fresh("A", age=60))
    assert await step_codes(portal, await portal.fresh("A", age=61)) == {}


@pytest.mark.parametrize(
    "type_code, reference, code",
    [
        ("02", ("A", "A"), None),
        ("03", ("A", "A"), None),
        ("02", ("NA", "OLD-1"), None),
        ("02", None, "Error06"),
        ("02", ("0" * 26, "A"), "Error06"),
        ("02", ("A", "B"), "Error06"),
        ("02", ("note", "DN"), "Error06"),
        ("03", ("note", "DN"), "Error06"),
        ("02", ("cancelled", "C"), "DR303"),
        ("02", ("other buyer", "D"), "DR308"),
    ],
)
async def test_an_invalid_reference_of_a_note_fails_step_6(
    portal: Portal, type_code: str, reference: tuple[str, str] | None, code: str | None
) -> None:
    uuids = {"A": await portal.accepted(await portal.fresh("A"))}
    uuids["cancelled"] = await portal.accepted(await portal.fresh("C"))
    await portal.change(uuids["cancelled"], "cancelled")
    other = put(
        await portal.fresh("D"),
        f"{CUSTOMER}.PartyIdentification",
        identifications(TIN="C9999999990", BRN="1"),
    )
    uuids["other buyer"] = await portal.accepted(other)
    debit = await portal.fresh("DN", type_code="03", original=(uuids["A"], "A"))
    uuids["note"] = await portal.accepted(debit)
    original = reference and (uuids.get(reference[0], reference[0]), reference[1])
    note = await portal.fresh("CN", type_code=type_code, original=original)
    assert await step_codes(portal, note) == ({"06": [code]} if code else {})


async def test_a_note_of_another_document_family_fails_step_6(portal: Portal) -> None:
    uuid = await portal.accepted(await self_billed(portal))
    note = await portal.fresh("CN", type_code="02", original=(uuid, "INV-1"))
    assert await step_codes(portal, note) == {"06": ["Error06"]}


def in_dollars(root: dict[str, Any]) -> dict[str, Any]:
    """Return a document in US dollars with the tax in ringgit, as in the authority's sample."""
    root = json.loads(json.dumps(root).replace('"currencyID": "MYR"', '"currencyID": "USD"'))
    put(root, "DocumentCurrencyCode", element("USD"))
    for path in ("TaxTotal.0", "InvoiceLine.0.TaxTotal.0"):
        put(root, f"{path}.TaxAmount.0.currencyID", "MYR")
        put(root, f"{path}.TaxSubtotal.0.TaxAmount.0.currencyID", "MYR")
    exchange = {
        "SourceCurrencyCode": element("USD"),
        "TargetCurrencyCode": element("MYR"),
        "CalculationRate": element(4.25),
    }
    return put(root, "TaxExchangeRate", [exchange])


async def test_totals_in_a_foreign_currency_are_shown_in_ringgit(portal: Portal) -> None:
    details = await portal.details(await portal.accepted(in_dollars(await portal.fresh())))
    assert (details["status"], details["totalPayableAmount"]) == ("Valid", 2465)


@pytest.mark.parametrize(
    "path, value, codes",
    [
        ("InvoiceLine.0.Price.0.PriceAmount.0.currencyID", "EUR", ["DC502"]),
        ("TaxExchangeRate.0.CalculationRate.0._", 0, ["Error07"]),
        ("TaxExchangeRate.0.SourceCurrencyCode.0._", "EUR", ["Error07"]),
        ("TaxCurrencyCode", None, ["DC502"] * 4),
        ("TaxExchangeRate.0.CalculationRate", None, ["Error07"]),
    ],
)
async def test_an_inconsistent_currency_fails_step_7(
    portal: Portal, path: str, value: Any, codes: Any
) -> None:
    expected = {"07": codes}
    assert await step_codes(portal, put(in_dollars(await portal.fresh()), path, value)) == expected


@pytest.mark.parametrize("rate, target, found", [(0, "MYR", {}), (4.25, "USD", {"07": ["DC511"]})])
async def test_an_exchange_rate_of_a_document_in_ringgit_targets_ringgit(
    portal: Portal, rate: float, target: str, found: dict[str, Any]
) -> None:
    exchange = {"SourceCurrencyCode": element("MYR"), "TargetCurrencyCode": element(target)}
    exchange["CalculationRate"] = element(rate)
    assert (
        await step_codes(portal, put(await portal.fresh(), "TaxExchangeRate", [exchange])) == found
    )


#: The published codes of findings, without those of the signature step.
PUBLISHED = """
CF320 CF321 CF324 CF333 CF334 CF336 CF337 CF339 CF340 CF342 CF343 CF345 CF346 CF348 CF349 CF358
CF364 CF366 CF378 CF401 CF403 CF404 CF407 CF410 CV302 CV316 CV317 ERR206 ERR208 ERR236 ERR245
ERR406 DR303 DR308 DV302 DS302 DC501 DC502 DC511
"""


def test_every_published_code_is_raised_by_a_validator() -> None:
    package = Path(validators.__file__).parent
    sources = [path.read_text() for path in (*package.glob("*.*"), package.parent / "controls.py")]
    assert set(PUBLISHED.split()) - set(re.findall(r"\b[A-Z]+\d{3}\b", "".join(sources))) == set()
