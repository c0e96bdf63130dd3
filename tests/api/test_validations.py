"""The validation endpoints: TIN checks at the portal, and codes of invoices and notes."""

import asyncio
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import add_key
from service.config import read_config
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import create_record, expect, list_rules, request_json
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.harness.bodies import note, now

TIN = {"registration_type": "BRN", "registration_number": "202101033579", "tin": "C5510387420"}
VALID = (200, {"data": {"valid": True}, "message": "TIN is valid"})
UNKNOWN = {**TIN, "registration_number": "202101033570"}


async def check_tin(api: Client, **body: Any) -> tuple[int, Any]:
    return await request_json(api, "POST", "/api/validation/tin", json=body)


def assert_refusal(body: dict[str, Any], code: str, *more: str) -> None:
    """Check the members of an error body of the validation endpoints, and its code."""
    assert set(body) == {"success", "message", "code", *more}
    assert (body["success"], body["code"]) == (False, code)


async def is_free(api: Client, kind: str = "invoice", **body: Any) -> bool:
    """Return whether a code of invoices, or of notes, can be used."""
    answer = await expect(api, 200, "POST", f"/api/validation/{kind}-code", json=body)
    assert answer == {"data": {"success": answer["data"]["success"]}}
    return answer["data"]["success"]


# TIN


async def test_a_tin_is_compared_without_blanks_hyphens_and_case(api: Client) -> None:
    found = await check_tin(
        api, **{**TIN, "registration_number": "2021-0103 3579", "tin": " c55-1038 7420\u200b"}
    )
    assert found == VALID


async def test_an_invalid_body_is_a_422_in_the_format_of_the_surface(api: Client) -> None:
    status, refusal = await check_tin(api, **{**TIN, "tin": None})
    assert_refusal(refusal, "validation_failed", "errors")
    assert (status, list_rules(refusal)) == (422, [("/tin", "type")])


async def test_all_errors_but_a_401_have_the_format_of_the_surface(api: Client) -> None:
    for data, kind, status, code in (
        (b"{", "application/json", 400, "invalid_json"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
    ):
        headers = {"Content-Type": kind}
        body = await expect(api, status, "POST", "/api/validation/tin", data=data, headers=headers)
        assert_refusal(body, code)
    path = "/api/validation/tin"
    refused = await request_json(api, "POST", path, json=TIN, headers={"X-API-Key": "wrong"})
    assert refused == (401, {"message": "Invalid API key"})
    await expect(api, 405, "GET", "/api/validation/tin")


async def test_an_unknown_tin_is_a_404_with_the_portals_error_body(api: Client) -> None:
    status, body = await check_tin(api, **UNKNOWN)
    trace = body["error"].pop("traceId")
    assert (status, body) == (
        404,
        {
            "error": {
                "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
                "title": "Not Found",
                "status": 404,
            },
            "code": "tin_unknown",
        },
    )
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", trace)


async def test_missing_members_of_the_portals_error_body_are_added(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("tin", "forget")  # a 404 without the usual members
    status, body = await check_tin(api, **UNKNOWN)
    assert (status, set(body), body["code"]) == (404, {"error", "code"}, "tin_unknown")
    assert set(body["error"]) == {"type", "title", "status", "traceId"}
    assert body["error"]["status"] == 404 and all(body["error"].values())


async def test_a_malformed_tin_is_a_400_with_the_portals_message(api: Client) -> None:
    status, body = await check_tin(api, **{**TIN, "tin": "X1"})
    assert status == 400
    assert body == {"success": False, "message": "tin is not valid.", "code": "tin_refused"}


async def test_a_tin_check_that_the_portal_does_not_permit_says_so(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("tin", "refuse", status=403)
    status, body = await check_tin(api, **TIN)
    assert status == 503 and "does not permit the service to validate TINs" in body["message"]
    assert_refusal(body, "portal_credentials_refused")


async def test_a_tin_without_identifier_is_valid_once_confirmed_with_one(api: Client) -> None:
    alone = {"registration_type": "NRIC", "tin": TIN["tin"]}
    status, body = await check_tin(api, **alone)
    assert (status, body["success"]) == (400, False) and "idValue" in body["message"]
    assert await check_tin(api, **TIN) == VALID
    assert await check_tin(api, **alone) == VALID


@pytest.mark.parametrize(
    "fault, code",
    [
        ({"kind": "drop"}, "portal_unavailable"),
        ({"kind": "error_before", "status": 503}, "portal_unavailable"),
        ({"kind": "html"}, "portal_unavailable"),
        ({"kind": "unauthorized"}, "portal_credentials_refused"),
    ],
)
async def test_a_failed_portal_request_is_a_503(
    api: Client, sandbox: Sandbox, fault: dict[str, Any], code: str
) -> None:
    await sandbox.fault("tin", **fault, times=5)
    async with api.post("/api/validation/tin", json=TIN) as response:
        assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
        body = await response.json()
    assert_refusal(body, code)


async def test_a_late_response_of_the_portal_is_cached(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api = await start(SUBMIT_WAIT_SECONDS="0.1")
    await sandbox.fault("tin", "slow", seconds=0.6)
    assert (await check_tin(api, **TIN))[0] == 503
    await until(lambda: owner.fetchval("select count(*) from tin_checks"))
    assert await check_tin(api, **TIN) == VALID
    assert await sandbox.count_calls("tin") == 1


async def test_a_portal_quota_error_is_a_429_with_retry_after(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("tin", "throttle", retry_after=30)
    for _ in range(2):
        async with api.post("/api/validation/tin", json=TIN) as response:
            assert response.status == 429 and 1 <= int(response.headers["Retry-After"]) <= 30
            body = await response.json()
        assert_refusal(body, "rate_limited")
    assert await sandbox.count_calls("tin") == 1


async def test_only_confirmed_tins_are_cached(api: Client, sandbox: Sandbox) -> None:
    assert [await check_tin(api, **TIN) for _ in range(3)] == [VALID] * 3
    assert await sandbox.count_calls("tin") == 1
    assert [(await check_tin(api, **UNKNOWN))[0] for _ in range(2)] == [404, 404]
    assert await sandbox.count_calls("tin") == 3


async def test_the_tin_cache_expires_and_is_per_company(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection, stranger: Client
) -> None:
    assert await check_tin(api, **TIN) == VALID
    await owner.execute("update tin_checks set confirmed_at = confirmed_at - interval '25 hours'")
    assert await check_tin(api, **TIN) == VALID
    assert await sandbox.count_calls("tin") == 2
    assert await check_tin(stranger, **TIN) == VALID
    assert await sandbox.count_calls("tin") == 3


async def test_expired_cache_entries_are_deleted_with_a_new_one(
    api: Client, owner: asyncpg.Connection
) -> None:
    assert await check_tin(api, **TIN) == VALID
    await owner.execute("update tin_checks set confirmed_at = confirmed_at - interval '25 hours'")
    found = await check_tin(
        api, registration_type="NRIC", registration_number="880214145566", tin="IG40125678090"
    )
    assert found == VALID
    expected = ["IG40125678090"]
    assert [row["tin"] for row in await owner.fetch("select tin from tin_checks")] == expected


async def test_the_lifetime_of_the_tin_cache_is_configurable(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api = await start(TIN_CACHE_SECONDS="60")
    assert await check_tin(api, **TIN) == VALID
    await owner.execute("update tin_checks set confirmed_at = confirmed_at - interval '61 seconds'")
    assert await check_tin(api, **TIN) == VALID
    assert await sandbox.count_calls("tin") == 2


@pytest.mark.parametrize("body, status", [(TIN, 200), (UNKNOWN, 404)])
async def test_concurrent_equal_tin_checks_share_one_portal_request(
    start: StartService, sandbox: Sandbox, body: dict[str, str], status: int
) -> None:
    api = await start(PORTAL_TIMEOUT_SECONDS="20", SUBMIT_WAIT_SECONDS="20")
    await sandbox.fault("tin", "slow_before", seconds=2)
    answers = await asyncio.gather(*[check_tin(api, **body) for _ in range(10)])
    assert [given for given, _ in answers] == [status] * 10
    assert await sandbox.count_calls("tin") == 1


async def check_tins(api: Client, numbers: Iterable[int], **headers: str) -> list[int]:
    """Return the sorted statuses of concurrent TIN checks with different identifiers."""
    asked = [
        request_json(
            api,
            "POST",
            "/api/validation/tin",
            json={**TIN, "registration_number": f"2{number:011}"},
            headers=headers,
        )
        for number in numbers
    ]
    return sorted(status for status, _ in await asyncio.gather(*asked))


async def test_tin_checks_over_the_limit_are_a_429_without_a_portal_request(
    start: StartService, company: Company, environment: dict[str, str], sandbox: Sandbox
) -> None:
    api = await start(TIN_CHECKS_PER_MINUTE="3")
    assert await check_tins(api, range(10)) == [404] * 3 + [429] * 7
    async with api.post("/api/validation/tin", json=UNKNOWN) as response:
        assert response.status == 429 and 1 <= int(response.headers["Retry-After"]) <= 20
        assert await response.json() == {
            "success": False,
            "message": "Too many TIN checks, please slow down.",
            "code": "rate_limited",
        }
    second = await run_command(read_config(environment), add_key, company.id)
    assert await check_tins(api, [11], **{"X-API-Key": second["key"]}) == [429]
    assert await sandbox.count_calls("tin") == 3
    other = await make_company(environment, tin_code="C4821093650")
    assert await check_tins(api, range(2), **{"X-API-Key": other.key}) == [404, 404]


async def test_tin_checks_without_a_portal_request_are_not_limited(
    start: StartService, sandbox: Sandbox
) -> None:
    """Cached results and checks that share a running request are not counted."""
    api = await start(
        TIN_CHECKS_PER_MINUTE="1", PORTAL_TIMEOUT_SECONDS="20", SUBMIT_WAIT_SECONDS="20"
    )
    await sandbox.fault("tin", "slow_before", seconds=1)
    assert await asyncio.gather(*[check_tin(api, **TIN) for _ in range(5)]) == [VALID] * 5
    assert await check_tin(api, **TIN) == VALID
    assert (await check_tin(api, **UNKNOWN))[0] == 429
    assert await sandbox.count_calls("tin") == 1


async def test_a_429_of_a_tin_check_is_not_replayed_for_its_key(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(TIN_CHECKS_PER_MINUTE="1")
    assert await check_tins(api, [1], **{"Idempotency-Key": "a"}) == [404]
    assert await check_tins(api, [2], **{"Idempotency-Key": "b"}) == [429]
    kept = await owner.fetch("select key from idempotency_keys")
    assert [row["key"] for row in kept] == ["a"]


async def test_a_limit_of_0_disables_the_limit_of_tin_checks(start: StartService) -> None:
    api = await start(TIN_CHECKS_PER_MINUTE="0")
    assert await check_tins(api, range(30)) == [404] * 30


async def test_each_company_has_its_own_login_for_tin_checks(
    api: Client, environment: dict[str, str], start: StartService, sandbox: Sandbox
) -> None:
    assert await check_tin(api, **TIN) == VALID
    stranger = await start(await make_company(environment, tin_code="C4821093650"))
    assert await check_tin(stranger, **TIN) == VALID
    assert await sandbox.count_calls("login") == 2


# Codes of invoices


async def test_an_invoice_code_is_free_until_used_in_the_year(api: Client) -> None:
    assert await is_free(api, invoice_code=7)
    invoice_id = await create_invoice(api, code=7)
    assert not await is_free(api, invoice_code=7)
    assert await is_free(api, invoice_code=7, invoice_id=invoice_id)
    assert not await is_free(api, invoice_code=7, invoice_id=invoice_id + 1)
    await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")
    assert await is_free(api, invoice_code=7)


async def test_an_invoice_code_of_another_year_is_free(api: Client) -> None:
    await create_invoice(api, code=7, issueDateTime=now(days=400))
    assert await is_free(api, invoice_code=7)


async def test_the_year_of_a_code_is_in_the_business_time_zone(start: StartService) -> None:
    """The time zones differ by 26 hours. Creation and check must use the same year."""
    for zone in ("Etc/GMT+12", "Pacific/Kiritimati"):
        api = await start(TIME_ZONE=zone)
        at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        invoice_id = await create_invoice(api, code=9, issueDateTime=at)
        assert not await is_free(api, invoice_code=9)
        await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")


async def test_an_invoice_code_is_used_by_every_type_of_invoice(api: Client) -> None:
    await create_invoice(api, code=7, type="PENDING_FINALIZE_INVOICE", buyer=None)
    assert not await is_free(api, invoice_code=7)


async def test_codes_and_ids_of_another_company_are_ignored(api: Client, stranger: Client) -> None:
    theirs = await create_invoice(stranger, code=7)
    assert await is_free(api, invoice_code=7)
    await create_invoice(api, code=7)
    assert not await is_free(api, invoice_code=7, invoice_id=theirs)


async def test_an_integer_code_with_a_decimal_point_is_accepted(api: Client) -> None:
    await create_invoice(api, code=7)
    request = {"data": b'{"invoice_code": 7.0}', "headers": {"Content-Type": "application/json"}}
    answer = await expect(api, 200, "POST", "/api/validation/invoice-code", **request)
    assert answer == {"data": {"success": False}}


# Codes of notes


async def test_a_note_code_is_free_until_used_by_a_note_of_its_type(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    note_id = (await create_record(api, path, **note(adjustmentNoteCode=3)))["id"]
    asked = {"adjustment_note_code": 3, "adjustment_note_type": "CREDIT_NOTE"}
    assert not await is_free(api, "adjustment-note", **asked)
    assert await is_free(api, "adjustment-note", **asked, adjustment_note_id=note_id)
    for kind in ("DEBIT_NOTE", "REFUND_NOTE"):
        assert await is_free(api, "adjustment-note", **{**asked, "adjustment_note_type": kind})
    await expect(api, 200, "DELETE", f"/api/adjustment-notes/{note_id}")
    assert await is_free(api, "adjustment-note", **asked)
