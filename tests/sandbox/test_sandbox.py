"""The sandbox API: login, TIN, submit, read, cancel, reject, lists, quotas."""

import base64
import hashlib
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.fixtures_sandbox import (
    API,
    BUYER,
    HOUR,
    SUPPLIER,
    Portal,
    document,
    encode_document,
    entry,
    put,
)
from tests.harness.sandbox import LOGIN


def test_the_smallest_document_has_the_published_hash() -> None:
    raw = encode_document(document())
    assert len(raw) == 3125
    assert (
        hashlib.sha256(raw).hexdigest()
        == "1a999c9d98cd80557b98d9dd3cfaee8e1dcdd58b13aaaded2e3e1ca01af6bfd9"
    )


@pytest.mark.parametrize(
    "fields, headers, error",
    [
        ({**LOGIN, "grant_type": "password", "client_id": ""}, {}, "unsupported_grant_type"),
        ({**LOGIN, "client_secret": ""}, {}, "invalid_request"),
        ({}, {}, "invalid_request"),
        ({**LOGIN, "client_secret": "guess"}, {}, "invalid_client"),
        ({**LOGIN, "client_id": "nobody"}, {}, "invalid_client"),
        ({**LOGIN, "scope": "Other"}, {}, "invalid_scope"),
        (LOGIN, {"onbehalfof": "nonsense"}, "invalid_request"),
    ],
)
async def test_login_refusals_are_oauth_errors(
    portal: Portal, fields: Any, headers: dict[str, Any], error: str
) -> None:
    answer = await portal.http.post("/connect/token", data=fields, headers=headers)
    assert (answer.status, (await answer.json())["error"]) == (400, error)


@pytest.mark.parametrize("charset", ["punycode", "utf-16", "nonsense"])
async def test_a_login_in_another_charset_is_refused(portal: Portal, charset: str) -> None:
    headers = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
    fields = urlencode(LOGIN).encode()
    answer = await portal.http.post("/connect/token", data=fields, headers=headers)
    assert (answer.status, (await answer.json())["error"]) == (400, "invalid_request")


async def test_a_client_that_is_no_intermediary_acts_only_for_itself(portal: Portal) -> None:
    await portal.admin("clients", client_id="own", client_secret="s", tin=SUPPLIER)
    fields = {**LOGIN, "client_id": "own", "client_secret": "s"}
    answer = await portal.http.post("/connect/token", data=fields, headers={"onbehalfof": BUYER})
    assert (await answer.json())["error"] == "unauthorized_client"


async def test_an_expired_token_is_unauthorized(portal: Portal) -> None:
    await portal.admin("clock", seconds=3599 - 5)
    assert (await portal.call("GET", "/documenttypes")).status == 200
    await portal.admin("clock", seconds=10)
    refusal = await portal.call("GET", "/documenttypes")
    assert (refusal.status, (await refusal.json())["error"]["code"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    "path, status",
    [
        (f"{SUPPLIER}?idType=BRN&idValue=201801024680", 200),
        (f"{SUPPLIER}?idType=BRN&idValue=1", 404),
        ("C9999999990?idType=BRN&idValue=1", 404),
        ("X?idType=BRN&idValue=1", 400),
        (f"{SUPPLIER}?idType=SSN&idValue=1", 400),
        (f"{SUPPLIER}?idValue=1", 400),
    ],
)
async def test_validating_a_tin(portal: Portal, path: str, status: int) -> None:
    assert (await portal.call("GET", f"/taxpayer/validate/{path}")).status == status


async def test_an_unknown_tin_returns_a_problem_with_four_members(portal: Portal) -> None:
    body = await portal.json("/taxpayer/validate/C9999999990?idType=BRN&idValue=1")
    assert list(body) == ["type", "title", "status", "traceId"]
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", body["traceId"])


async def test_searching_a_tin(portal: Portal) -> None:
    found = await portal.json("/taxpayer/search/tin?idType=BRN&idValue=201801024680")
    assert found == {"tin": SUPPLIER}
    await portal.admin("taxpayers", tin="C7777777770", name="Perabot Seri Maju Sdn. Bhd.")
    twice = await portal.call(
        "GET", "/taxpayer/search/tin?taxpayerName=Perabot Seri Maju Sdn. Bhd."
    )
    assert (twice.status, (await twice.json())["error"]["code"]) == (400, "BadRequest")
    assert (await portal.call("GET", "/taxpayer/search/tin?taxpayerName=Nobody")).status == 404


async def test_a_document_becomes_valid_and_has_a_public_page(portal: Portal) -> None:
    submitted = await portal.submit(await portal.fresh())
    assert submitted.status == 202
    uid = (await submitted.json())["submissionUid"]
    submission = await portal.json(f"/documentsubmissions/{uid}")
    (shown,) = submission["documentSummary"]
    assert submission["overallStatus"] == "Valid"
    assert (shown["status"], shown["totalPayableAmount"]) == ("Valid", 580)
    page = await portal.http.get(f"/{shown['uuid']}/share/{shown['longId']}")
    assert page.status == 200 and "Perabot Seri Maju" in await page.text()
    assert (await portal.http.get(f"/{shown['uuid']}/share/other")).status == 404


async def test_the_public_page_escapes_what_it_shows(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh("<script>alert(1)</script>"))
    page = await portal.http.get(f"/{uuid}/share/{(await portal.details(uuid))['longId']}")
    assert "<script" not in await page.text()


async def test_a_document_is_in_progress_until_its_time(portal: Portal) -> None:
    await portal.admin("settings", processing_seconds=30, not_found_seconds=5)
    uid = (await (await portal.submit(await portal.fresh())).json())["submissionUid"]
    assert (await portal.call("GET", f"/documentsubmissions/{uid}")).status == 404
    await portal.admin("clock", seconds=10)
    assert (await portal.json(f"/documentsubmissions/{uid}"))["overallStatus"] == "InProgress"
    await portal.admin("clock", seconds=30)
    assert (await portal.json(f"/documentsubmissions/{uid}"))["overallStatus"] == "Valid"


async def test_stuck_documents_stay_submitted_until_released(portal: Portal) -> None:
    await portal.admin("settings", stuck=True)
    uuid = await portal.accepted(await portal.fresh())
    await portal.admin("clock", seconds=HOUR - 60)
    details = await portal.details(uuid)
    assert details["status"] == "Submitted"
    assert (details["validationResults"], details["longId"]) == (None, "")
    await portal.admin("settings", stuck=False)
    assert (await portal.details(uuid))["status"] == "Valid"


async def test_the_raw_document_is_returned_byte_for_byte(portal: Portal) -> None:
    sent = await portal.fresh()
    raw = await portal.json(f"/documents/{await portal.accepted(sent)}/raw")
    assert entry(sent)["documentHash"] == (await portal.ledger())[0]["sha256"]
    assert raw["document"].encode() == base64.b64decode(entry(sent)["document"])


async def test_a_fully_rejected_submission_is_a_202_without_uid(portal: Portal) -> None:
    answer = await portal.submit(document())
    body = await answer.json()
    assert (answer.status, body["submissionUid"], body["acceptedDocuments"]) == (202, None, [])
    assert await portal.ledger() == []


@pytest.mark.parametrize("status, code", [(400, "ValidationError"), (403, "IncorrectSubmitter")])
async def test_a_document_of_another_issuer_fails_the_submission(
    portal: Portal, status: int, code: str
) -> None:
    await portal.admin("settings", mismatch_status=status)
    await portal.login(BUYER)
    answer = await portal.submit(await portal.fresh())
    assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    "body, code",
    [
        (b"{", "ValidationError"),
        (b'{"documents": []}', "BadStructure"),
        (b'{"documents": [{}]}', "BadStructure"),
        (b'{"documents": [], "more": 1}', "BadStructure"),
        (b"[]", "BadStructure"),
        (b" " * (5 * 1024 * 1024 + 1), "MaximumSizeExceeded"),
    ],
)
async def test_an_invalid_envelope_fails_the_submission(
    portal: Portal, body: bytes, code: str
) -> None:
    answer = await portal.call("POST", "/documentsubmissions", data=body)
    assert (answer.status, (await answer.json())["error"]["code"]) == (400, code)


@pytest.mark.parametrize("changes", [{"documents": 101}, {"bytes": 301 * 1024}])
async def test_a_submission_over_a_limit_is_refused(
    portal: Portal, changes: dict[str, Any]
) -> None:
    big = put(document(), "Note", [{"_": "x" * changes.get("bytes", 1)}])
    body = {"documents": [entry(big)] * changes.get("documents", 1)}
    answer = await portal.call("POST", "/documentsubmissions/", json=body)
    assert (await answer.json())["error"]["code"] == "MaximumSizeExceeded"


@pytest.mark.parametrize(
    "changes, target",
    [
        ({"documentHash": "0" * 64}, "documentHash"),
        ({"document": "%"}, "document"),
        ({"codeNumber": "B"}, "codeNumber"),
    ],
)
async def test_an_invalid_entry_is_rejected_alone(
    portal: Portal, changes: dict[str, Any], target: str
) -> None:
    body = {"documents": [entry(await portal.fresh("A"), **changes)]}
    answer = await (await portal.call("POST", "/documentsubmissions/", json=body)).json()
    (found,) = answer["rejectedDocuments"][0]["error"]["details"]
    assert (found["code"], found["target"]) == (None, target)


async def test_a_duplicate_payload_is_refused_for_ten_minutes(portal: Portal) -> None:
    sent = await portal.fresh()
    await portal.accepted(sent)
    again = await portal.submit(sent)
    assert (again.status, (await again.json())["error"]["code"]) == (422, "DuplicateSubmission")
    assert 590 <= int(again.headers["Retry-After"]) <= 600
    await portal.admin("clock", seconds=601)
    assert (await portal.submit(sent)).status == 202


async def error_of(answer: Any) -> tuple[Any, Any]:
    error = (await answer.json())["error"]
    assert error["details"][0]["code"] == error["code"]
    return answer.status, error["code"]


async def test_a_document_is_cancelled_only_once(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh())
    assert await (await portal.change(uuid, "cancelled")).json() == {
        "uuid": uuid,
        "status": "Cancelled",
    }
    details = await portal.details(uuid)
    assert details["status"] == "Cancelled"
    assert details["documentStatusReason"] == "Wrong buyer details"
    assert details["cancelDateTime"]
    assert (await portal.http.get(f"/{uuid}/share/{details['longId']}")).status == 200
    assert await error_of(await portal.change(uuid, "cancelled")) == (400, "IncorrectState")


async def test_a_cancellation_after_its_window_is_refused(portal: Portal) -> None:
    uuids = [await portal.accepted(await portal.fresh(number)) for number in "AB"]
    await portal.admin("clock", seconds=72 * HOUR - 30)
    await portal.login()
    assert (await portal.change(uuids[0], "cancelled")).status == 200
    await portal.admin("clock", seconds=31)
    assert await error_of(await portal.change(uuids[1], "cancelled")) == (
        400,
        "OperationPeriodOver",
    )


async def test_a_valid_note_prevents_cancelling_its_original(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh("A"))
    note = await portal.accepted(await portal.fresh("CN", type_code="02", original=(uuid, "A")))
    assert (await portal.details(note))["status"] == "Valid"
    assert await error_of(await portal.change(uuid, "cancelled")) == (
        400,
        "ActiveReferencingDocuments",
    )
    assert (await portal.change(note, "cancelled")).status == 200
    assert (await portal.change(uuid, "cancelled")).status == 200


async def test_only_the_issuer_cancels_and_only_the_receiver_rejects(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh())
    assert (await portal.change(uuid, "rejected")).status == 403
    await portal.login(BUYER)
    assert (await portal.change(uuid, "cancelled")).status == 403
    rejected = await portal.change(uuid, "rejected", "Goods were never ordered")
    assert await rejected.json() == {"uuid": uuid, "status": "Requested for Rejection"}
    assert await error_of(await portal.change(uuid, "rejected")) == (400, "IncorrectState")
    await portal.login()
    details = await portal.details(uuid)
    assert details["status"] == "Valid"
    assert details["documentStatusReason"] == "Goods were never ordered"
    assert details["rejectRequestDateTime"]


@pytest.mark.parametrize(
    "status, reason", [("cancelled", ""), ("cancelled", "x" * 301), ("void", "why")]
)
async def test_a_status_change_with_a_missing_argument_is_refused(
    portal: Portal, status: str, reason: str
) -> None:
    assert (await portal.change("0" * 26, status, reason)).status == 400
    assert (await portal.change("0" * 26, "cancelled")).status == 404


async def test_a_submitted_document_is_not_cancelled(portal: Portal) -> None:
    await portal.admin("settings", stuck=True)
    uuid = await portal.accepted(await portal.fresh())
    assert await error_of(await portal.change(uuid, "cancelled")) == (400, "IncorrectState")


async def test_the_portal_page_cancels_and_the_buyer_rejects(portal: Portal) -> None:
    uuids = [await portal.accepted(await portal.fresh(number)) for number in "AB"]
    await portal.admin(f"documents/{uuids[0]}/cancel", reason="By hand")
    await portal.admin(f"documents/{uuids[1]}/reject", reason="Not ours")
    assert (await portal.details(uuids[0]))["status"] == "Cancelled"
    assert (await portal.details(uuids[1]))["documentStatusReason"] == "Not ours"


async def test_a_document_is_readable_by_its_issuer_and_receiver(portal: Portal) -> None:
    await portal.admin("clients", client_id="buyer", client_secret="s", tin=BUYER)
    await portal.admin("settings", processing_seconds=5)
    uuid = await portal.accepted(await portal.fresh())
    receiver = await Portal(portal.http).login(None, "buyer", "s")
    assert (await receiver.call("GET", f"/documents/{uuid}/details")).status == 404
    await portal.admin("clock", seconds=6)
    assert (await receiver.call("GET", f"/documents/{uuid}/details")).status == 200
    assert (await portal.call("GET", f"/documents/{uuid}/raw")).status == 200
    await portal.login("C2084716530")
    assert (await portal.call("GET", f"/documents/{uuid}/raw")).status == 404


async def day(portal: Portal) -> str:
    return f"submissionDateFrom={await portal.now(-HOUR)}&submissionDateTo={await portal.now(60)}"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "submissionDateFrom=2026-09-01T00:00:00Z",
        "submissionDateFrom=2026-09-02&submissionDateTo=2026-09-01",
        "submissionDateFrom=2026-07-01&submissionDateTo=2026-09-01",
        "submissionDateFrom=x&submissionDateTo=2026-09-01",
        "submissionDateFrom=2026-09-01&submissionDateTo=2026-09-02&pageSize=101",
        "submissionDateFrom=2026-09-01&submissionDateTo=2026-09-02&status=Void",
        "submissionDateFrom=2026-09-01&submissionDateTo=2026-09-02&searchQuery=%3C",
    ],
)
async def test_an_invalid_search_is_refused(portal: Portal, query: str) -> None:
    answer = await portal.call("GET", f"/documents/search?{query}")
    assert (answer.status, (await answer.json())["error"]["code"]) == (400, "BadArgument")


@pytest.mark.parametrize(
    "query, numbers",
    [
        ("", ["B", "A"]),
        ("&status=Valid", ["B", "A"]),
        ("&status=Cancelled", []),
        ("&documentType=02", []),
        ("&invoiceDirection=Received", []),
        ("&invoicedirection=Sent", ["B", "A"]),
        ("&searchQuery=tiga rasa", ["B", "A"]),
        ("&searchQuery=C5510387420", ["B", "A"]),
    ],
)
async def test_search_filters(portal: Portal, query: str, numbers: list[Any]) -> None:
    for number in "AB":
        await portal.accepted(await portal.fresh(number))
    found = await portal.json(f"/documents/search?{await day(portal)}{query}")
    assert [row["internalId"] for row in found["result"]] == numbers


async def test_search_shows_a_document_only_after_its_lag(portal: Portal) -> None:
    await portal.admin("settings", search_lag_seconds=60)
    await portal.accepted(await portal.fresh())
    assert (await portal.json("/documents/recent"))["result"] == []
    await portal.admin("clock", seconds=61)
    (row,) = (await portal.json("/documents/recent"))["result"]
    assert {"submissionUID", "supplierTin", "buyerTin"} <= set(row)


async def test_recent_documents_filters_require_a_direction(portal: Portal) -> None:
    await portal.accepted(await portal.fresh())
    assert (await portal.call("GET", f"/documents/recent?receiverTin={BUYER}")).status == 400
    found = await portal.json(f"/documents/recent?InvoiceDirection=Sent&receiverTin={BUYER}")
    assert found["metadata"]["totalCount"] == 1
    other = await portal.json(
        "/documents/recent?InvoiceDirection=Sent&receiverIdType=BRN&receiverId=1"
    )
    assert other["metadata"] == {"totalPages": 0, "totalCount": 0}


async def test_requests_over_a_quota_are_refused(portal: Portal) -> None:
    await portal.admin("settings", rate_scale=1)
    answers = [await portal.call("GET", "/documents/recent") for _ in range(13)]
    assert [each.status for each in answers] == [200] * 12 + [429]
    assert [each.headers["X-Rate-Limit-Remaining"] for each in answers[10:]] == ["1", "0", "0"]
    refused = answers[-1]
    assert "X-Rate-Limit-Reset" not in answers[0].headers
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z", refused.headers["X-Rate-Limit-Reset"]
    )
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    await portal.admin("clock", seconds=60)
    assert (await portal.call("GET", "/documents/recent")).status == 200


async def test_a_second_search_within_five_seconds_is_refused(portal: Portal) -> None:
    await portal.admin("settings", rate_scale=1)
    query = await day(portal)
    assert [(await portal.call("GET", f"/documents/search?{query}")).status for _ in range(2)] == [
        200,
        429,
    ]
    await portal.admin("clock", seconds=5)
    assert (await portal.call("GET", f"/documents/search?{query}")).status == 200


async def test_every_response_has_a_correlation_id_and_the_date(portal: Portal) -> None:
    await portal.admin("clock", seconds=24 * HOUR)
    first, second = [await portal.http.get(path) for path in (f"{API}/documenttypes", "/nowhere")]
    assert (first.status, second.status) == (401, 404)
    assert first.headers["correlationId"] != second.headers["correlationId"]
    assert (await portal.now())[8:10] == first.headers["Date"][5:7]


async def test_the_standard_dialect_uses_its_own_error_members(portal: Portal) -> None:
    await portal.admin("settings", error_dialect="standard")
    error = (await portal.json("/documents/0/details"))["error"]
    assert (error["errorCode"], error["innerError"]) == ("NotFound", None)
    assert "errorMS" in error and "errorMs" not in error


async def test_document_types_are_listed(portal: Portal) -> None:
    assert len((await portal.json("/documenttypes"))["result"]) == 8
    one = await portal.json("/documenttypes/1")
    assert {each["value"] for each in one["workflowParameters"]} == {72}
    found = await portal.json(f"/documenttypes/1/versions/{one['documentTypeVersions'][0]['id']}")
    assert found["name"] == "1.0"
    assert (await portal.call("GET", "/documenttypes/9")).status == 404


async def test_an_intermediary_sees_only_what_it_sent(portal: Portal) -> None:
    uuid = await portal.accepted(await portal.fresh())
    await portal.admin(
        "clients", client_id="other", client_secret="s", tin="C2084716530", intermediary=True
    )
    other = await Portal(portal.http).login(SUPPLIER, "other", "s")
    assert (await other.call("GET", f"/documents/{uuid}/details")).status == 404
    assert (await other.json("/documents/recent"))["result"] == []
