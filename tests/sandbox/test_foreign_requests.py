"""Requests as other clients of the portal send them, and as the authority's examples show them."""

import base64
import uuid
from datetime import datetime
from typing import Any

import pytest

from tests.fixtures_sandbox import BUYER, HOUR, SUPPLIER, Portal, entry, put


@pytest.mark.parametrize("name", ["JSON", "json", "Json"])
async def test_the_format_of_a_document_is_compared_without_case(portal: Portal, name: str) -> None:
    answer = await portal.send(entry(await portal.fresh("A"), format=name))
    assert answer.status == 202
    assert [each["invoiceCodeNumber"] for each in (await answer.json())["acceptedDocuments"]] == [
        "A"
    ]


@pytest.mark.parametrize("name", ["", "PDF", "jsonx", "J S O N"])
async def test_an_unknown_format_fails_the_submission(portal: Portal, name: str) -> None:
    answer = await portal.send(entry(await portal.fresh(), format=name))
    error = (await answer.json())["error"]
    assert answer.status == 400
    assert (error["code"], error["target"]) == ("BadStructure", "documents[0].format")


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


INVALID = {
    "/documents/recent": ("pageNo=-1", "pageNo=x", "pageNo=1000001", f"pageNo={'9' * 20}"),
    "/notifications/taxpayer": (
        *("type=2", "type=x", "status=0", "language=fr", "dateFrom=x", "pageSize=101"),
    ),
}


@pytest.mark.parametrize(
    "path, query", [(path, query) for path, queries in INVALID.items() for query in queries]
)
async def test_an_invalid_query_is_refused(portal: Portal, path: str, query: str) -> None:
    answer = await portal.call("GET", f"{path}?{query}")
    error = (await answer.json())["error"]
    assert (answer.status, error["target"]) == (400, query.partition("=")[0])


async def test_the_status_of_a_state_change_is_compared_without_case(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh())
    await portal.login(BUYER)
    rejected = await portal.change(uuid, "Rejected")
    assert rejected.status == 200
    assert await rejected.json() == {"uuid": uuid, "status": "Requested for Rejection"}
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


# Notifications

ROW = (
    "notificationId receiverName notificationDeliveryId creationDateTime receivedDateTime "
    "notificationSubject deliveredDateTime typeId typeName finalMessage address language "
    "status deliveryAttempts"
)


async def notified(portal: Portal, query: str = "") -> list[tuple[str, str]]:
    """Return (type, subject) of each notification."""
    found = await portal.json(f"/notifications/taxpayer?{query}")
    return [(row["typeId"], row["notificationSubject"]) for row in found["result"]]


async def log_in_as_buyer(portal: Portal) -> Portal:
    """Return a client of the buyer's own, not of an intermediary."""
    await portal.admin("clients", client_id="buyer", client_secret="s", tin=BUYER)
    return await Portal(portal.http).login(None, "buyer", "s")


async def test_a_notification_has_the_published_members(portal: Portal) -> None:
    await portal.accepted(await portal.fresh("A"))
    found = await portal.json("/notifications/taxpayer")
    (row,) = found["result"]
    assert found["metadata"] == {"hasNext": False}
    assert list(row) == ROW.split()
    assert (row["typeId"], row["typeName"]) == ("7", "Document validated")
    assert (row["status"], row["language"]) == ("delivered", "en")
    assert [each["status"] for each in row["deliveryAttempts"]] == ["delivered"]


async def test_issuer_and_receiver_are_notified_of_changes(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh("A"))
    buyer = await log_in_as_buyer(portal)
    await portal.admin("clock", seconds=10)
    await buyer.change(uuid, "rejected")
    await portal.admin("clock", seconds=10)
    await portal.change(uuid, "cancelled")
    assert await notified(portal) == [
        ("15", "Document rejection initiated: Invoice A"),
        ("7", "Document validated: Invoice A"),
    ]
    assert await notified(buyer) == [
        ("8", "Document cancelled: Invoice A"),
        ("6", "Document received: Invoice A"),
    ]


async def test_an_invalid_document_notifies_its_issuer_only(portal: Portal) -> None:
    await portal.accepted(
        put(await portal.fresh("A"), "InvoiceLine.0.InvoicedQuantity.0.unitCode", "pcs")
    )
    assert [kind for kind, _ in await notified(portal)] == ["7"]
    assert await notified(await log_in_as_buyer(portal)) == []


async def test_notifications_have_pages(portal: Portal) -> None:
    for number in "ABC":
        await portal.accepted(await portal.fresh(number))
    pages = [
        await portal.json(f"/notifications/taxpayer?pageSize=2&pageNo={page}")
        for page in (0, 1, 2, 3)
    ]
    assert [[row["notificationSubject"][-1] for row in page["result"]] for page in pages] == [
        ["C", "B"],
        ["C", "B"],
        ["A"],
        [],
    ]
    assert [page["metadata"]["hasNext"] for page in pages] == [True, True, False, False]


@pytest.mark.parametrize(
    "query, count",
    [
        ("type=7", 1),
        ("type=15", 0),
        ("status=4", 1),
        ("status=5", 0),
        ("language=en", 1),
        ("language=ms", 0),
        ("dateFrom=2020-01-01T00:00:00Z", 1),
        ("dateTo=2020-01-01T00:00:00Z", 0),
    ],
)
async def test_notifications_have_filters(portal: Portal, query: str, count: int) -> None:
    await portal.accepted(await portal.fresh("A"))
    assert len(await notified(portal, query)) == count


async def test_an_intermediary_is_notified_of_what_it_sent(portal: Portal) -> None:
    await portal.accepted(await portal.fresh("A"))
    await portal.admin(
        "clients", client_id="other", client_secret="s", tin="C2084716530", intermediary=True
    )
    other = await Portal(portal.http).login(SUPPLIER, "other", "s")
    buyer = await Portal(portal.http).login(BUYER, "other", "s")
    assert await notified(other) == await notified(buyer) == []


# QR code of a taxpayer

QR_MEMBERS = (
    "tin name idType idNumber sst email contactNumber ttx businessActivityDescriptionBM "
    "businessActivityDescriptionEN msic addressLine0 addressLine1 addressLine2 postalZone "
    "city state country generatedTimestamp"
)


async def qr_codes(portal: Portal) -> dict[str, str]:
    """Return {TIN: text of the QR code} of all taxpayers."""
    listed = (await portal.admin("taxpayers"))["taxpayers"]
    return {row["tin"]: base64.b64decode(row["qrCode"]).decode() for row in listed}


async def test_a_qr_code_shows_its_taxpayer(portal: Portal) -> None:
    text = (await qr_codes(portal))[SUPPLIER]
    assert str(uuid.UUID(text)) == text
    shown = await portal.json(f"/taxpayers/qrcodeinfo/{text}")
    assert list(shown) == QR_MEMBERS.split()
    assert all(isinstance(value, str) for value in shown.values())
    assert [shown[name] for name in QR_MEMBERS.split()[:4]] == [
        SUPPLIER,
        "Perabot Seri Maju Sdn. Bhd.",
        "BRN",
        "201801024680",
    ]
    assert datetime.fromisoformat(shown["generatedTimestamp"]).tzinfo is None


async def test_a_qr_code_shows_the_profile_of_its_taxpayer(portal: Portal) -> None:
    profile = {"email": "a@b.example;c@d.example", "msic": "31001", "city": "Muar"}
    await portal.admin("taxpayers", tin="C7777777770", name="New", profile=profile)
    text = (await qr_codes(portal))["C7777777770"]
    shown = await portal.json(f"/taxpayers/qrcodeinfo/{text}")
    assert profile.items() <= shown.items()


@pytest.mark.parametrize("text", ["4e1bc907-25b7-45b1-9620-2d671a6f9cae", "x", SUPPLIER, "%00"])
async def test_an_unknown_qr_code_is_not_found(portal: Portal, text: str) -> None:
    answer = await portal.call("GET", f"/taxpayers/qrcodeinfo/{text}")
    assert (answer.status, (await answer.json())["error"]["code"]) == (404, "NotFound")


@pytest.mark.parametrize("profile", [[], {"email": 1}, {"phone": "1"}])
async def test_an_invalid_profile_is_refused(portal: Portal, profile: Any) -> None:
    answer = await portal.http.post(
        "/_sandbox/taxpayers", json={"tin": "C7777777770", "profile": profile}
    )
    assert answer.status == 400


async def test_requests_for_qr_codes_have_a_quota(portal: Portal) -> None:
    await portal.admin("settings", rate_scale=1 / 60)
    answers = [await portal.call("GET", "/taxpayers/qrcodeinfo/x") for _ in range(2)]
    assert [each.status for each in answers] == [404, 429]
