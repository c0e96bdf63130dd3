"""Outcomes of documents that are sent together, and of amounts that do not add up."""

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from tests.fixtures_sandbox import BUYER, HOUR, Portal, document, money, put
from tests.sandbox.test_sandbox_rules import findings, step_codes

UNIT = "InvoiceLine.0.InvoicedQuantity.0.unitCode"


async def test_documents_of_one_submission_have_separate_outcomes(portal: Portal) -> None:
    """One document is rejected at once. Of two with the same identity the second is a duplicate."""
    await portal.admin("settings", processing_seconds=30)
    first = await portal.fresh("A")
    sent = (
        first,
        put(deepcopy(first), "InvoiceLine.0.Item.0.Description.0._", "A duplicate"),
        put(await portal.fresh("B"), UNIT, "pcs"),
        document("C"),
    )
    body = await (await portal.submit(*sent)).json()
    assert [each["invoiceCodeNumber"] for each in body["acceptedDocuments"]] == ["A", "A", "B"]
    assert [each["invoiceCodeNumber"] for each in body["rejectedDocuments"]] == ["C"]
    path = f"/documentsubmissions/{body['submissionUid']}"
    assert (await portal.json(path))["overallStatus"] == "InProgress"
    await portal.admin("clock", seconds=31)
    submission = await portal.json(path)
    assert (submission["overallStatus"], submission["documentCount"]) == ("Partially Valid", 3)
    assert [each["status"] for each in submission["documentSummary"]] == [
        "Valid",
        "Invalid",
        "Invalid",
    ]


async def test_a_submission_of_invalid_documents_is_invalid(portal: Portal) -> None:
    sent = [put(await portal.fresh(number), UNIT, "pcs") for number in "AB"]
    body = await (await portal.submit(*sent)).json()
    found = await portal.json(f"/documentsubmissions/{body['submissionUid']}")
    assert found["overallStatus"] == "Invalid"


async def test_several_steps_can_fail_at_once(portal: Portal) -> None:
    root = put(await portal.fresh(), UNIT, "pcs")
    put(root, "LegalMonetaryTotal.0.PayableAmount.0.currencyID", "USD")
    await portal.admin("taxpayers", tin=BUYER, name="Tiga Rasa", blocked=True)
    assert await step_codes(portal, root) == {"04": ["CV302"], "05": ["Error05"], "07": ["DC502"]}


async def test_a_document_is_no_duplicate_of_one_processed_two_hours_ago(portal: Portal) -> None:
    """The window starts when the first document was processed, not when it was issued or sent."""
    first = await portal.fresh(age=60)
    await portal.admin("settings", processing_seconds=600)
    await portal.accepted(first)
    await portal.admin("clock", seconds=2 * HOUR - 60)
    await portal.login()
    again = await portal.accepted(put(first, "InvoiceLine.0.Item.0.Description.0._", "Second"))
    await portal.admin("clock", seconds=601)
    details = await portal.details(again)
    assert details["status"] == "Invalid"
    await portal.admin("clock", seconds=2 * HOUR + 1)
    await portal.login()
    last = await portal.accepted(put(first, "InvoiceLine.0.Item.0.Description.0._", "Third"))
    await portal.admin("clock", seconds=601)
    assert (await portal.details(last))["status"] == "Valid"


async def test_of_two_equal_concurrent_bodies_only_the_first_is_accepted(portal: Portal) -> None:
    sent = await portal.fresh()
    answers = await asyncio.gather(*(portal.submit(sent) for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [202, 422, 422, 422, 422]


async def test_another_taxpayer_may_send_the_same_body(portal: Portal) -> None:
    """The body is refused because of its issuer, not as a duplicate payload."""
    sent = await portal.fresh()
    await portal.accepted(sent)
    await portal.login(BUYER)
    answer = await portal.submit(sent)
    assert (answer.status, (await answer.json())["error"]["code"]) == (400, "ValidationError")


async def test_a_forbidden_status_change_has_its_code_in_both_places(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh())
    error = (await (await portal.change(uuid, "rejected")).json())["error"]
    assert (error["code"], error["details"][0]["code"]) == ("Forbidden", "Forbidden")


CHARGED = [{"ChargeIndicator": [{"_": True}], "Amount": money(5)}]
LINE = "InvoiceLine.0"
ODD = [
    ("LegalMonetaryTotal.0.PayableAmount.0._", 580.01, "LegalMonetaryTotal.PayableAmount"),
    ("LegalMonetaryTotal.0.LineExtensionAmount.0._", 579, "LegalMonetaryTotal.LineExtensionAmount"),
    (
        "LegalMonetaryTotal.0.AllowanceTotalAmount",
        money(1),
        "LegalMonetaryTotal.AllowanceTotalAmount",
    ),
    ("LegalMonetaryTotal.0.ChargeTotalAmount", money(1), "LegalMonetaryTotal.ChargeTotalAmount"),
    ("AllowanceCharge", CHARGED, "LegalMonetaryTotal.TaxExclusiveAmount"),
    ("TaxTotal.0.TaxAmount.0._", 0.01, "TaxTotal.TaxAmount"),
    ("TaxTotal.0.TaxSubtotal.0.TaxAmount.0._", 1, "TaxTotal.TaxSubtotal.TaxAmount (06)"),
    (
        "TaxTotal.0.TaxSubtotal.0.TaxableAmount.0._",
        1160,
        "TaxTotal.TaxSubtotal.TaxableAmount (06)",
    ),
    (f"{LINE}.Price.0.PriceAmount.0._", 145.01, "InvoiceLine[0].ItemPriceExtension.Amount"),
    (f"{LINE}.AllowanceCharge", CHARGED, "InvoiceLine[0].LineExtensionAmount"),
    (f"{LINE}.TaxTotal.0.TaxAmount.0._", 1, "InvoiceLine[0].TaxTotal.TaxAmount"),
]


@pytest.mark.parametrize("path, value, target", ODD)
async def test_amounts_that_do_not_add_up_are_a_warning(
    portal: Portal, path: str, value: Any, target: Any
) -> None:
    uuid = await portal.accepted(put(await portal.fresh(), path, value))
    details = await portal.details(uuid)
    assert details["status"] == "Valid"
    assert target in [each["target"] for each in details["warnings"]]
    (row,) = await portal.ledger()
    assert row["warnings"] == details["warnings"]


async def test_amounts_are_refused_on_request(portal: Portal) -> None:
    await portal.admin("settings", strict_totals=True)
    path, value, target = ODD[0]
    assert await findings(portal, put(await portal.fresh(), path, value)) == [(None, target)]


@pytest.mark.parametrize(
    "amounts, taxable, is_right",
    [
        ((580, 580), 580, True),
        ((580, 580), 1160, False),
        ((280, 300), 580, True),
        ((280, 200), 480, True),
        ((280, 200), 580, False),
    ],
)
async def test_taxes_of_one_type_on_a_line_share_its_amount(
    portal: Portal, amounts: tuple[int, int], taxable: int, is_right: bool
) -> None:
    root = await portal.fresh()
    subtotals = root["Invoice"][0]["InvoiceLine"][0]["TaxTotal"][0]["TaxSubtotal"]
    subtotals[:] = [{**subtotals[0], "TaxableAmount": money(amount)} for amount in amounts]
    put(root, "TaxTotal.0.TaxSubtotal.0.TaxableAmount", money(taxable))
    details = await portal.details(await portal.accepted(root))
    assert ("warnings" not in details) is is_right


@pytest.mark.parametrize(
    "of_line, total, is_right", [(58, 0, True), (0, 0, False), (58, 58, False)]
)
async def test_a_tax_forgone_is_in_the_subtotals_and_in_no_total(
    portal: Portal, of_line: int, total: int, is_right: bool
) -> None:
    root = await portal.fresh()
    for path in ("TaxTotal", f"{LINE}.TaxTotal"):
        put(root, f"{path}.0.TaxSubtotal.0.TaxCategory.0.ID.0._", "E")
        put(root, f"{path}.0.TaxSubtotal.0.TaxCategory.0.TaxExemptionReason", [{"_": "Order 7"}])
    put(root, "TaxTotal.0.TaxSubtotal.0.TaxAmount.0._", 58)
    put(root, f"{LINE}.TaxTotal.0.TaxSubtotal.0.TaxAmount.0._", of_line)
    put(root, "TaxTotal.0.TaxAmount.0._", total)
    details = await portal.details(await portal.accepted(root))
    assert ("warnings" not in details) is is_right


async def test_amounts_that_add_up_are_no_warning(portal: Portal) -> None:
    await portal.admin("settings", strict_totals=True)
    root = put(await portal.fresh(), f"{LINE}.InvoicedQuantity.0._", 3.999999)  # rounds to 580.00
    details = await portal.details(await portal.accepted(root))
    assert "warnings" not in details
    assert [row["warnings"] for row in await portal.ledger()] == [[]]


async def test_a_warning_names_the_found_and_the_expected_amount(portal: Portal) -> None:
    uuid = await portal.accepted(
        put(await portal.fresh(), "LegalMonetaryTotal.0.PayableAmount.0._", 580.01)
    )
    (warning,) = (await portal.details(uuid))["warnings"]
    assert warning["message"] == "LegalMonetaryTotal.PayableAmount is 580.01 and should be 580."
