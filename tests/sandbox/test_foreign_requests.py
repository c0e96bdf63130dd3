"""Requests as other clients of the portal send them, and as the authority's examples show them."""

from typing import Any

import pytest
from fixtures_sandbox import BUYER, HOUR, Portal, entry, put


async def post(portal: Portal, *entries: dict[str, Any]) -> Any:
    return await portal.call("POST", "/documentsubmissions/", json={"documents": list(entries)})


@pytest.mark.parametrize("name", ["JSON", "json", "Json"])
async def test_the_format_of_a_document_is_compared_without_case(portal: Portal, name: str) -> None:
    answer = await post(portal, entry(await portal.fresh("A"), format=name))
    assert answer.status == 202
    assert [each["invoiceCodeNumber"] for each in (await answer.json())["acceptedDocuments"]] == [
        "A"
    ]


@pytest.mark.parametrize("name", ["", "PDF", "jsonx", "J S O N"])
async def test_an_unknown_format_fails_the_submission(portal: Portal, name: str) -> None:
    answer = await post(portal, entry(await portal.fresh(), format=name))
    error = (await answer.json())["error"]
    assert (answer.status, error["code"], error["target"]) == (
        400,
        "BadStructure",
        "documents[0].format",
    )


@pytest.mark.parametrize("listing", ["recent", "search"])
async def test_page_zero_is_the_first_page_of_a_listing(portal: Portal, listing: str) -> None:
    for number in "ABC":
        await portal.accepted(await portal.fresh(number))
    span = f"submissionDateFrom={await portal.now(-HOUR)}&submissionDateTo={await portal.now(60)}"
    pages = [
        await portal.json(f"/documents/{listing}?{span}&pageSize=2&pageNo={page}")
        for page in (0, 1, 2)
    ]
    assert [[row["internalId"] for row in page["result"]] for page in pages] == [
        ["C", "B"],
        ["C", "B"],
        ["A"],
    ]
    assert pages[0]["metadata"] == {"totalPages": 2, "totalCount": 3}


@pytest.mark.parametrize("page", ["-1", "x", "1000001", "9" * 20])
async def test_an_invalid_page_of_a_listing_is_refused(portal: Portal, page: str) -> None:
    answer = await portal.call("GET", f"/documents/recent?pageNo={page}")
    error = (await answer.json())["error"]
    assert (answer.status, error["target"]) == (400, "pageNo")


async def test_the_status_of_a_state_change_is_compared_without_case(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh())
    await portal.login(BUYER)
    rejected = await portal.change(uuid, "Rejected")
    assert (rejected.status, await rejected.json()) == (
        200,
        {"uuid": uuid, "status": "Requested for Rejection"},
    )
    await portal.login()
    cancelled = await portal.change(uuid, "Cancelled")
    assert (await cancelled.json())["status"] == "Cancelled"


@pytest.mark.parametrize("status", ["Reject", 1, None, ["rejected"]])
async def test_an_unknown_status_of_a_state_change_is_refused(portal: Portal, status: Any) -> None:
    uuid = await portal.accepted(await portal.fresh())
    answer = await portal.change(uuid, status)
    assert (answer.status, (await answer.json())["error"]["target"]) == (400, "status")


# Structure errors

BLOCKS = """ArrayItemNotValid: #/Invoice[0]
{
  ArrayItemNotValid: #/Invoice[0].BillingReference[0]
  {
    ObjectExpected: #/Invoice[0].BillingReference[0]
  }
  \n  ArrayItemNotValid: #/Invoice[0].BillingReference[1]
  {
    ObjectExpected: #/Invoice[0].BillingReference[1]
  }
  \n}
"""


async def rejection_of(portal: Portal, root: dict[str, Any]) -> Any:
    """Submit a document that must be rejected, and return its error."""
    (rejected,) = (await (await portal.submit(root)).json())["rejectedDocuments"]
    return rejected["error"]


async def test_structure_errors_are_nested_by_array_entry(portal: Portal) -> None:
    """The text is one that the portal sent, with 272 characters."""
    error = await rejection_of(portal, put(await portal.fresh("A"), "BillingReference", [[], []]))
    assert (error["code"], error["target"]) == ("3", "A")
    assert len(BLOCKS) == 272
    assert error["details"] == [
        {
            "code": None,
            "message": BLOCKS,
            "target": "[0]",
            "propertyPath": "#/Invoice[0]",
            "details": None,
        }
    ]


async def test_a_mandatory_array_that_is_null_is_an_error_of_its_holder(portal: Portal) -> None:
    root = await portal.fresh()
    root["Invoice"][0]["DocumentCurrencyCode"] = None
    (found,) = (await rejection_of(portal, root))["details"]
    assert found["message"] == (
        "ArrayItemNotValid: #/Invoice[0]\n{\n"
        "  ArrayExpected: #/Invoice[0].DocumentCurrencyCode\n}\n"
    )


async def test_a_structure_error_outside_the_invoice_names_its_member(portal: Portal) -> None:
    root = {**await portal.fresh(), "UBLExtensions": []}
    (found,) = (await rejection_of(portal, root))["details"]
    assert (found["message"], found["target"], found["propertyPath"]) == (
        "NoAdditionalPropertiesAllowed: #/UBLExtensions",
        "UBLExtensions",
        "#/UBLExtensions",
    )


async def test_the_violations_of_one_document_are_limited(portal: Portal) -> None:
    root = put(await portal.fresh(), "InvoiceLine", [{}] * 1000)
    put(root, "[0]" * 20_000, "x")
    (found,) = (await rejection_of(portal, root))["details"]
    assert len(found["message"]) < 20_000
