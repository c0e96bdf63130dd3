"""XML documents in a JSON submission: the same checks as for JSON, and safe parsing."""

from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest

from tests.fixtures_sandbox import Portal, element, entry, entry_of, money, put
from tests.sandbox.test_sandbox_rules import CUSTOMER, ITEM, SELLER

NAMESPACE = "urn:oasis:names:specification:ubl:schema:xsd:"
HEAD = (
    f'<Invoice xmlns="{NAMESPACE}Invoice-2" xmlns:cac="{NAMESPACE}CommonAggregateComponents-2" '
    f'xmlns:cbc="{NAMESPACE}CommonBasicComponents-2">'
)
UNREADABLE = {
    "code": None,
    "message": "Document cannot be parsed.",
    "target": "document",
    "propertyPath": None,
    "details": None,
}


def to_xml(root: dict[str, Any], indent: str = "") -> bytes:
    return f"{HEAD}{indent}{write_group(root['Invoice'][0], indent)}</Invoice>".encode()


def write_group(members: dict[str, Any], indent: str) -> str:
    return "".join(
        write_element(name, entry, indent) for name, entries in members.items() for entry in entries
    )


def write_element(name: str, members: dict[str, Any], indent: str) -> str:
    if "_" not in members:
        return f"<cac:{name}>{indent}{write_group(members, indent)}</cac:{name}>{indent}"
    attributes = "".join(
        f" {each}={quoteattr(text)}" for each, text in members.items() if each != "_"
    )
    value = members["_"]
    text = str(value).lower() if isinstance(value, bool) else escape(str(value))
    return f"<cbc:{name}{attributes}>{text}</cbc:{name}>{indent}"


def xml_entry(raw: bytes, number: str) -> dict[str, Any]:
    return entry_of(raw, number, "XML")


async def outcome(portal: Portal, sent: dict[str, Any]) -> Any:
    """Return the findings of one entry: those of the immediate checks, else the steps."""
    answer = await (await portal.send(sent)).json()
    if answer["rejectedDocuments"]:
        return answer["rejectedDocuments"][0]["error"]["details"]
    details = await portal.details(answer["acceptedDocuments"][0]["uuid"])
    return details["validationResults"], details.get("warnings")


@pytest.mark.parametrize("name", ["XML", "xml"])
@pytest.mark.parametrize("indent", ["", "\n    "])
async def test_an_xml_document_in_a_json_submission_becomes_valid(
    portal: Portal, name: str, indent: str
) -> None:
    raw = b'<?xml version="1.0" encoding="UTF-8"?>\n' + to_xml(await portal.fresh("A"), indent)
    answer = await (await portal.send(entry_of(raw, "A", name))).json()
    assert answer["rejectedDocuments"] == []
    details = await portal.details(answer["acceptedDocuments"][0]["uuid"])
    assert details["status"] == "Valid"
    assert (details["totalPayableAmount"], details.get("warnings")) == (580, None)
    source = await portal.json(f"/documents/{details['uuid']}/raw")
    assert source["document"].encode() == raw


async def test_an_xml_document_may_use_other_prefixes(portal: Portal) -> None:
    text = to_xml(await portal.fresh("A")).decode()
    for old, new in (("cac:", "a:"), ("cbc:", "b:"), (":cac=", ":a="), (":cbc=", ":b=")):
        text = text.replace(old, new)
    text = text.replace("<Invoice xmlns=", "<u:Invoice xmlns:u=").replace(
        "</Invoice>", "</u:Invoice>"
    )
    results, _ = await outcome(portal, xml_entry(text.encode(), "A"))
    assert results["status"] == "Valid"


async def test_a_note_in_xml_repeats_the_reference_for_each_original(portal: Portal) -> None:
    uuids = [await portal.accepted(await portal.fresh(number)) for number in "AB"]
    note = await portal.fresh("CN", type_code="02")
    note["Invoice"][0]["BillingReference"] = [
        {"InvoiceDocumentReference": [{"ID": element(number), "UUID": element(uuid)}]}
        for number, uuid in zip("AB", uuids, strict=True)
    ]
    results, _ = await outcome(portal, xml_entry(to_xml(note), "CN"))
    assert results["status"] == "Valid"
    assert (await portal.change(uuids[1], "cancelled")).status == 400


#: Path and value of a change that the checks of each kind find, in either format.
CHANGES = [
    ("IssueDate", element("2026-02-30")),
    ("IssueTime", None),
    ("TaxTotal.0.TaxAmount", money("free")),
    ("TaxTotal.0.TaxAmount", element(0)),
    ("Surprise", element("x")),
    ("InvoiceLine", None),
    ("InvoiceTypeCode", element("05", listVersionID="1.0")),
    ("AllowanceCharge", [{"ChargeIndicator": element("maybe"), "Amount": money(1)}]),
    ("AllowanceCharge", [{"ChargeIndicator": element(True), "Amount": money(1)}]),
    (f"{CUSTOMER}.Contact", None),
    (f"{SELLER}.PartyLegalEntity.0.RegistrationName", element("x" * 301)),
    (f"{SELLER}.Contact.0.ElectronicMail", element("none")),
    (f"{ITEM}.CommodityClassification", None),
    (f"{ITEM}.Description", element("Chair & table <oak> \u00e9")),
    (
        "TaxExchangeRate",
        [{"SourceCurrencyCode": element("MYR"), "TargetCurrencyCode": element("USD")}],
    ),
    (f"{CUSTOMER}.PostalAddress.0.CountrySubentityCode", element("88")),
    ("LegalMonetaryTotal.0.PayableAmount", money(580.01)),
]


@pytest.mark.parametrize("path, value", CHANGES, ids=[path for path, _ in CHANGES])
async def test_an_xml_document_has_the_findings_of_the_same_json_document(
    portal: Portal, path: str, value: Any
) -> None:
    await portal.admin("settings", duplicate_detection=False)
    root = put(await portal.fresh("A"), path, value)
    expected = await outcome(portal, entry(root))
    assert await outcome(portal, xml_entry(to_xml(root), "A")) == expected


async def test_an_element_of_another_namespace_is_a_structure_error(portal: Portal) -> None:
    raw = to_xml(await portal.fresh("A")).replace(b"cbc:IssueDate", b"cac:IssueDate")
    (found,) = await outcome(portal, xml_entry(raw, "A"))
    assert "PropertyRequired: #/Invoice[0].IssueDate" in found["message"]
    assert "NoAdditionalPropertiesAllowed: #/Invoice[0].{urn:oasis:names" in found["message"]


@pytest.mark.parametrize(
    "changed, message",
    [
        (b"<cac:Price Id='1'>", "NoAdditionalPropertiesAllowed: "),
        (b"<cac:Price>text", "NoAdditionalPropertiesAllowed: "),
        (b"<cac:Contact/><cac:Price>", "NoAdditionalPropertiesAllowed: "),
    ],
)
async def test_a_group_in_xml_has_only_its_elements(
    portal: Portal, changed: bytes, message: str
) -> None:
    raw = to_xml(await portal.fresh("A")).replace(b"<cac:Price>", changed)
    (found,) = await outcome(portal, xml_entry(raw, "A"))
    assert message in found["message"]


async def test_an_exponent_in_xml_is_no_number(portal: Portal) -> None:
    raw = to_xml(await portal.fresh("A")).replace(b">145<", b">1.45e2<")
    (found,) = await outcome(portal, xml_entry(raw, "A"))
    assert (
        "NumberExpected: #/Invoice[0].InvoiceLine[0].Price[0].PriceAmount[0]._" in found["message"]
    )


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
UNSAFE = {
    "entity expansion": f'<!DOCTYPE x [<!ENTITY e0 "ha">{ENTITIES}]>{HEAD}&e9;</Invoice>',
    "external entity": f'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>{HEAD}&e;</Invoice>',
    "external parameter entity": f'<!DOCTYPE x [<!ENTITY % e SYSTEM "http://127.0.0.1:1/">%e;]>{HEAD}</Invoice>',
    "document type": f"<!DOCTYPE Invoice>{HEAD}</Invoice>",
    "document type with a file": f'<!DOCTYPE Invoice SYSTEM "file:///etc/passwd">{HEAD}</Invoice>',
    "unknown entity": f"{HEAD}&unknown;</Invoice>",
    "deep nesting": HEAD + "<a>" * 40_000 + "</a>" * 40_000 + "</Invoice>",
    "33 levels": HEAD + "<a>" * 32 + "</a>" * 32 + "</Invoice>",
    "another root": "<Invoice/>",
    "another document": HEAD.replace("Invoice-2", "CreditNote-2") + "</Invoice>",
    "unknown prefix": f"{HEAD}<x:ID/></Invoice>",
    "no end": HEAD,
    "two roots": f"{HEAD}</Invoice>{HEAD}</Invoice>",
    "no XML": "{}",
    "nothing": "",
    "NUL": f"{HEAD}\0</Invoice>",
    "byte-order mark": f"\ufeff{HEAD}</Invoice>",
}


@pytest.mark.parametrize("name", UNSAFE)
async def test_unsafe_or_malformed_xml_is_rejected(portal: Portal, name: str) -> None:
    assert await outcome(portal, xml_entry(UNSAFE[name].encode(), "A")) == [UNREADABLE]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
async def test_xml_in_another_encoding_is_rejected(portal: Portal, encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    raw = f"{head}{HEAD}<cbc:Note>\u00e9</cbc:Note></Invoice>".encode(encoding)
    assert await outcome(portal, xml_entry(raw, "A")) == [UNREADABLE]


@pytest.mark.parametrize("name, sent", [("JSON", "xml"), ("XML", "json")])
async def test_a_document_of_the_other_format_is_rejected(
    portal: Portal, name: str, sent: str
) -> None:
    root = await portal.fresh("A")
    sent_entry = xml_entry(to_xml(root), "A") if sent == "xml" else entry(root)
    assert await outcome(portal, {**sent_entry, "format": name}) == [UNREADABLE]


async def test_an_xml_document_over_the_limit_is_refused(portal: Portal) -> None:
    root = put(await portal.fresh("A"), "Note", element("x" * 301 * 1024))
    answer = await portal.send(xml_entry(to_xml(root), "A"))
    assert (await answer.json())["error"]["code"] == "MaximumSizeExceeded"


async def test_a_submission_has_documents_of_one_format(portal: Portal) -> None:
    root = await portal.fresh("A")
    answer = await portal.send(entry(await portal.fresh("B")), xml_entry(to_xml(root), "A"))
    assert (answer.status, (await answer.json())["error"]["code"]) == (400, "BadStructure")


@pytest.mark.parametrize("version", ["1.1", "1.3"])
async def test_a_signed_xml_document_is_not_implemented(portal: Portal, version: str) -> None:
    root = put(await portal.fresh("A"), "InvoiceTypeCode", element("01", listVersionID=version))
    answer = await portal.send(xml_entry(to_xml(root), "A"))
    error = (await answer.json())["error"]
    assert (answer.status, error["code"], error["target"]) == (501, "NotImplemented", "A")
    assert "signatures in XML" in error["message"]
    assert await portal.ledger() == []


async def test_an_xml_submission_is_not_implemented(portal: Portal) -> None:
    answer = await portal.call(
        "POST",
        "/documentsubmissions/",
        data=b"<documents/>",
        headers={"Content-Type": "application/xml"},
    )
    error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (501, "NotImplemented")
    assert "JSON submission" in error["message"]
