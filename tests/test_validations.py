"""The validation helpers: what is refused before the portal is asked, what the portal says, which codes are free."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from conftest import Sandbox, make_company, until
from kit import answered, created, note, now, valid_invoice

TIN = {"registration_type": "BRN", "registration_number": "202101033579", "tin": "C5510387420"}
VALID = (200, {"data": {"valid": True}, "message": "TIN is valid"})
UNKNOWN = {**TIN, "registration_number": "202101033570"}


async def tin(api: Any, **body: Any) -> tuple[int, Any]:
    return await answered(api, "POST", "/api/validation/tin", json=body)


async def portal_calls(sandbox: Sandbox) -> Any:
    """How often the sandbox was asked for a TIN."""
    return (await sandbox.calls())["calls"].get("tin", 0)


async def invoice_code(api: Any, **body: Any) -> tuple[int, Any]:
    return await answered(api, "POST", "/api/validation/invoice-code", json=body)


async def note_code(api: Any, **body: Any) -> tuple[int, Any]:
    return await answered(api, "POST", "/api/validation/adjustment-note-code", json=body)


def free(is_free: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"data": {"success": is_free}}


# TIN


async def test_a_tin_with_its_identifier_is_valid(api: Any) -> None:
    assert await tin(api, **TIN) == VALID


async def test_a_tin_is_compared_without_blanks_hyphens_and_case(api: Any) -> None:
    assert (
        await tin(
            api, **{**TIN, "registration_number": "2021-0103 3579", "tin": " c55-1038 7420\u200b"}
        )
        == VALID
    )


@pytest.mark.parametrize(
    "body, message",
    [
        ({}, "Invalid registration type"),
        ({"tin": "C5510387420"}, "Invalid registration type"),
        ({"registration_type": "IC", "tin": "C5510387420"}, "Invalid registration type"),
        ({"registration_type": "brn", "tin": "C5510387420"}, "Invalid registration type"),
        (
            {"registration_type": "BRN", "registration_number": "202101033579"},
            "TIN is required when only registration number is provided",
        ),
        (
            {"registration_type": "BRN", "registration_number": "202101033579", "tin": " "},
            "TIN is required when only registration number is provided",
        ),
        ({"registration_type": "NRIC"}, "TIN or registration number is required"),
        (
            {"registration_type": "NRIC", "registration_number": "", "tin": ""},
            "TIN or registration number is required",
        ),
        ({"registration_type": "NRIC", "tin": ".."}, "TIN or registration number is required"),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_the_portal_is(
    api: Any, sandbox: Sandbox, body: dict[str, Any], message: str
) -> None:
    assert await tin(api, **body) == (400, {"success": False, "message": message})
    assert await portal_calls(sandbox) == 0


@pytest.mark.parametrize(
    "body, path, rule",
    [
        ({**TIN, "registration_type": 1}, "/registration_type", "type"),
        ({**TIN, "tin": None}, "/tin", "type"),
        ({**TIN, "registration_number": 202101033579}, "/registration_number", "type"),
        ({**TIN, "tin": "C" * 41}, "/tin", "maxLength"),
        ({**TIN, "tin_code": "C1"}, "/tin_code", "unknown"),
    ],
)
async def test_a_body_of_another_shape_is_refused_in_the_shape_of_the_surface(
    api: Any, body: dict[str, Any], path: str, rule: str
) -> None:
    status, refusal = await tin(api, **body)
    assert (status, set(refusal), refusal["success"]) == (
        422,
        {"success", "message", "errors"},
        False,
    )
    assert [(fault["path"], fault["rule"]) for fault in refusal["errors"]] == [(path, rule)]


async def test_errors_before_the_body_have_the_shape_of_the_surface_but_for_authentication(
    api: Any,
) -> None:
    for data, kind, status in ((b"{", "application/json", 400), (b"{}", "text/plain", 415)):
        given, body = await answered(
            api, "POST", "/api/validation/tin", data=data, headers={"Content-Type": kind}
        )
        assert (given, set(body), body["success"]) == (status, {"success", "message"}, False)
    refused = await answered(
        api, "POST", "/api/validation/tin", json=TIN, headers={"X-API-Key": "wrong"}
    )
    assert refused == (401, {"message": "Invalid API key"})
    assert (await answered(api, "GET", "/api/validation/tin"))[0] == 405


async def test_an_unknown_tin_comes_with_the_portals_error_body(api: Any) -> None:
    status, body = await tin(api, **UNKNOWN)
    trace = body["error"].pop("traceId")
    assert (status, body) == (
        404,
        {
            "error": {
                "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
                "title": "Not Found",
                "status": 404,
            }
        },
    )
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", trace)


async def test_what_the_portals_error_body_lacks_is_made_up(api: Any, sandbox: Sandbox) -> None:
    await sandbox.fault("tin", "forget")  # a 404 in another form
    status, body = await tin(api, **UNKNOWN)
    assert status == 404 and set(body) == {"error"}
    assert set(body["error"]) == {"type", "title", "status", "traceId"}
    assert body["error"]["status"] == 404 and all(body["error"].values())


async def test_a_tin_that_the_portal_finds_malformed_comes_with_its_words(api: Any) -> None:
    status, body = await tin(api, **{**TIN, "tin": "X1"})
    assert (status, body) == (400, {"success": False, "message": "tin is not valid."})


async def test_a_tin_alone_is_the_portals_to_judge_until_an_identifier_has_confirmed_it(
    api: Any,
) -> None:
    alone = {"registration_type": "NRIC", "tin": TIN["tin"]}
    status, body = await tin(api, **alone)
    assert (status, body["success"]) == (400, False) and "idValue" in body["message"]
    assert await tin(api, **TIN) == VALID
    assert await tin(api, **alone) == VALID


@pytest.mark.parametrize(
    "fault", [{"kind": "drop"}, {"kind": "error_before", "status": 503}, {"kind": "html"}]
)
async def test_without_a_word_of_the_portal_nothing_is_valid(
    api: Any, sandbox: Sandbox, fault: dict[str, Any]
) -> None:
    await sandbox.fault("tin", **fault, times=5)
    async with api.post("/api/validation/tin", json=TIN) as response:
        assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
        body = await response.json()
    assert set(body) == {"success", "message"} and body["success"] is False


async def test_a_portal_that_refuses_our_login_is_away(api: Any, sandbox: Sandbox) -> None:
    await sandbox.fault("tin", "unauthorized", times=5)
    assert (await tin(api, **TIN))[0] == 503


async def test_a_portal_that_cannot_be_reached_is_away(start: Any, company: Any) -> None:
    api = await start(
        company, PORTAL_API_BASE="http://127.0.0.1:9", PORTAL_IDENTITY_BASE="http://127.0.0.1:9"
    )
    assert (await tin(api, **TIN))[0] == 503


async def test_a_slow_portal_is_away_and_its_late_answer_still_kept(
    start: Any, company: Any, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api = await start(company, SUBMIT_WAIT_SECONDS="0.1")
    await sandbox.fault("tin", "slow", seconds=0.6)
    assert (await tin(api, **TIN))[0] == 503
    await until(lambda: owner.fetchval("select count(*) from tin_checks"))
    assert await tin(api, **TIN) == VALID
    assert await portal_calls(sandbox) == 1


async def test_over_the_portals_quota_the_client_gets_a_retry_after(
    api: Any, sandbox: Sandbox
) -> None:
    await sandbox.fault("tin", "throttle", retry_after=30)
    for _ in range(2):
        async with api.post("/api/validation/tin", json=TIN) as response:
            assert response.status == 429 and 1 <= int(response.headers["Retry-After"]) <= 30
            body = await response.json()
        assert set(body) == {"success", "message"} and body["success"] is False
    assert await portal_calls(sandbox) == 1


async def test_a_confirmed_tin_is_not_asked_about_again_a_refused_one_is(
    api: Any, sandbox: Sandbox
) -> None:
    assert [await tin(api, **TIN) for _ in range(3)] == [VALID] * 3
    assert await portal_calls(sandbox) == 1
    assert [(await tin(api, **UNKNOWN))[0] for _ in range(2)] == [404, 404]
    assert await portal_calls(sandbox) == 3


async def test_a_confirmation_is_kept_for_its_time_and_for_its_company(
    api: Any, start: Any, environment: dict[str, str], sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    assert await tin(api, **TIN) == VALID
    await owner.execute("update tin_checks set confirmed_at = confirmed_at - interval '25 hours'")
    assert await tin(api, **TIN) == VALID
    assert await portal_calls(sandbox) == 2
    stranger = await start(await make_company(environment))
    assert await tin(stranger, **TIN) == VALID
    assert await portal_calls(sandbox) == 3


async def test_old_confirmations_go_when_new_ones_come(api: Any, owner: asyncpg.Connection) -> None:
    assert await tin(api, **TIN) == VALID
    await owner.execute("update tin_checks set confirmed_at = confirmed_at - interval '25 hours'")
    assert (
        await tin(
            api, registration_type="NRIC", registration_number="880214145566", tin="IG40125678090"
        )
        == VALID
    )
    assert [row["tin"] for row in await owner.fetch("select tin from tin_checks")] == [
        "IG40125678090"
    ]


async def test_how_long_a_confirmation_is_kept_can_be_set(
    start: Any, company: Any, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api = await start(company, TIN_CACHE_SECONDS="60")
    assert await tin(api, **TIN) == VALID
    await owner.execute("update tin_checks set confirmed_at = confirmed_at - interval '61 seconds'")
    assert await tin(api, **TIN) == VALID
    assert await portal_calls(sandbox) == 2


@pytest.mark.parametrize("body, status", [(TIN, 200), (UNKNOWN, 404)])
async def test_many_who_ask_the_same_at_once_are_one_call(
    start: Any, company: Any, sandbox: Sandbox, body: Any, status: int
) -> None:
    api = await start(company, PORTAL_TIMEOUT_SECONDS="20", SUBMIT_WAIT_SECONDS="20")
    await sandbox.fault("tin", "slow_before", seconds=2)
    answers = await asyncio.gather(*[tin(api, **body) for _ in range(10)])
    assert [given for given, _ in answers] == [status] * 10
    assert await portal_calls(sandbox) == 1


async def checks(api: Any, numbers: list[str], **headers: Any) -> list[Any]:
    """The statuses of TIN checks with so many different identifiers."""
    asked = [
        answered(
            api,
            "POST",
            "/api/validation/tin",
            json={**TIN, "registration_number": f"2{number:011}"},
            headers=headers,
        )
        for number in numbers
    ]
    return sorted(status for status, _ in await asyncio.gather(*asked))


async def test_tin_checks_over_the_limit_of_a_key_do_not_reach_the_portal(
    start: Any, company: Any, environment: dict[str, str], sandbox: Sandbox
) -> None:
    api = await start(company, TIN_CHECKS_PER_MINUTE="3")
    assert await checks(api, range(10)) == [404] * 3 + [429] * 7
    async with api.post("/api/validation/tin", json=UNKNOWN) as response:
        assert response.status == 429 and 1 <= int(response.headers["Retry-After"]) <= 20
        assert await response.json() == {
            "success": False,
            "message": "Too many TIN checks, please slow down.",
        }
    assert await portal_calls(sandbox) == 3
    other = await make_company(environment, tin_code="C4821093650")
    assert await checks(api, range(2), **{"X-API-Key": other.key}) == [404, 404]


async def test_tin_checks_that_the_portal_is_not_asked_for_do_not_count(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    """A cached answer, and a question that is being asked."""
    api = await start(
        company, TIN_CHECKS_PER_MINUTE="1", PORTAL_TIMEOUT_SECONDS="20", SUBMIT_WAIT_SECONDS="20"
    )
    await sandbox.fault("tin", "slow_before", seconds=1)
    assert await asyncio.gather(*[tin(api, **TIN) for _ in range(5)]) == [VALID] * 5
    assert await tin(api, **TIN) == VALID
    assert (await tin(api, **UNKNOWN))[0] == 429
    assert await portal_calls(sandbox) == 1


async def test_a_refused_tin_check_is_not_kept_for_its_idempotency_key(
    start: Any, company: Any, owner: asyncpg.Connection
) -> None:
    api = await start(company, TIN_CHECKS_PER_MINUTE="1")
    assert await checks(api, [1], **{"Idempotency-Key": "a"}) == [404]
    assert await checks(api, [2], **{"Idempotency-Key": "b"}) == [429]
    kept = await owner.fetch("select key from idempotency_keys")
    assert [row["key"] for row in kept] == ["a"]


async def test_tin_checks_without_a_limit_are_not_counted(start: Any, company: Any) -> None:
    api = await start(company, TIN_CHECKS_PER_MINUTE="0")
    assert await checks(api, range(30)) == [404] * 30


async def test_the_portal_is_asked_on_behalf_of_the_company(
    api: Any, environment: dict[str, str], start: Any, sandbox: Sandbox
) -> None:
    assert await tin(api, **TIN) == VALID
    stranger = await start(await make_company(environment, tin_code="C4821093650"))
    assert await tin(stranger, **TIN) == VALID
    assert (await sandbox.calls())["calls"]["login"] == 2


# Codes of invoices


async def test_an_invoice_code_is_free_until_an_invoice_of_the_year_has_it(api: Any) -> None:
    assert await invoice_code(api, invoice_code=7) == free(True)
    invoice_id = await created(api, code=7)
    assert await invoice_code(api, invoice_code=7) == free(False)
    assert await invoice_code(api, invoice_code=7, invoice_id=invoice_id) == free(True)
    assert await invoice_code(api, invoice_code=7, invoice_id=invoice_id + 1) == free(False)
    async with api.delete(f"/api/invoices/{invoice_id}") as response:
        assert response.status == 200
    assert await invoice_code(api, invoice_code=7) == free(True)


async def test_the_code_of_another_year_is_free(api: Any) -> None:
    await created(api, code=7, issueDateTime=now(days=400))
    assert await invoice_code(api, invoice_code=7) == free(True)


async def test_the_current_year_is_that_of_the_business_time_zone(start: Any, company: Any) -> None:
    """Zones 26 hours apart; whichever year an instant lies in, code and check agree on it."""
    for zone in ("Etc/GMT+12", "Pacific/Kiritimati"):
        api = await start(company, TIME_ZONE=zone)
        at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        invoice_id = await created(api, code=9, issueDateTime=at)
        assert await invoice_code(api, invoice_code=9) == free(False)
        async with api.delete(f"/api/invoices/{invoice_id}"):
            pass


async def test_the_code_of_any_type_of_invoice_counts(api: Any) -> None:
    await created(api, code=7, type="PENDING_FINALIZE_INVOICE", buyer=None)
    assert await invoice_code(api, invoice_code=7) == free(False)


async def test_another_companys_code_is_free_and_its_id_excludes_nothing(
    api: Any, start: Any, environment: dict[str, str]
) -> None:
    stranger = await start(await make_company(environment))
    theirs = await created(stranger, code=7)
    assert await invoice_code(api, invoice_code=7) == free(True)
    await created(api, code=7)
    assert await invoice_code(api, invoice_code=7, invoice_id=theirs) == free(False)


@pytest.mark.parametrize(
    "body, path, rule",
    [
        ({}, "/invoice_code", "required"),
        ({"invoice_code": "7"}, "/invoice_code", "type"),
        ({"invoice_code": 7.5}, "/invoice_code", "type"),
        ({"invoice_code": 0}, "/invoice_code", "minimum"),
        ({"invoice_code": 10**12}, "/invoice_code", "maximum"),
        ({"invoice_code": 7, "invoice_id": "1"}, "/invoice_id", "type"),
        ({"invoice_code": 7, "invoice_id": 2**63}, "/invoice_id", "maximum"),
        ({"invoice_code": 7, "code": 7}, "/code", "unknown"),
    ],
)
async def test_an_invoice_code_that_cannot_be_one_is_refused(
    api: Any, body: dict[str, Any], path: str, rule: str
) -> None:
    status, refusal = await invoice_code(api, **body)
    assert (status, refusal["success"]) == (422, False)
    assert [(fault["path"], fault["rule"]) for fault in refusal["errors"]] == [(path, rule)]


async def test_a_code_may_be_written_with_a_decimal_point(api: Any) -> None:
    await created(api, code=7)
    async with api.post(
        "/api/validation/invoice-code",
        data=b'{"invoice_code": 7.0}',
        headers={"Content-Type": "application/json"},
    ) as response:
        assert (response.status, await response.json()) == free(False)


# Codes of notes


async def test_a_note_code_is_free_until_a_note_of_its_type_has_it(api: Any) -> None:
    invoice_id = await valid_invoice(api)
    status, body = await answered(
        api, "POST", f"/api/invoices/{invoice_id}/adjustment-note", json=note(adjustmentNoteCode=3)
    )
    assert status == 201
    noted = body["data"]["id"]
    asked = {"adjustment_note_code": 3, "adjustment_note_type": "CREDIT_NOTE"}
    assert await note_code(api, **asked) == free(False)
    assert await note_code(api, **asked, adjustment_note_id=noted) == free(True)
    for kind in ("DEBIT_NOTE", "REFUND_NOTE"):
        assert await note_code(api, adjustment_note_code=3, adjustment_note_type=kind) == free(True)
    assert (await answered(api, "DELETE", f"/api/adjustment-notes/{noted}"))[0] == 200
    assert await note_code(api, **asked) == free(True)


@pytest.mark.parametrize(
    "kind", [{}, {"adjustment_note_type": "INVOICE"}, {"adjustment_note_type": ""}]
)
async def test_a_type_of_note_that_there_is_not_is_refused(api: Any, kind: dict[str, Any]) -> None:
    refusal = {"success": False, "message": "Invalid adjustment note type"}
    assert await note_code(api, adjustment_note_code=3, **kind) == (400, refusal)


@pytest.mark.parametrize(
    "body",
    [
        {"adjustment_note_type": "CREDIT_NOTE"},
        {"adjustment_note_code": 0, "adjustment_note_type": "CREDIT_NOTE"},
        {"adjustment_note_code": 3, "adjustment_note_type": 1},
        {"adjustment_note_code": 3, "adjustment_note_type": "CREDIT_NOTE", "note": 1},
    ],
)
async def test_a_note_code_that_cannot_be_one_is_refused(api: Any, body: dict[str, Any]) -> None:
    status, refusal = await note_code(api, **body)
    assert (status, set(refusal), refusal["success"]) == (
        422,
        {"success", "message", "errors"},
        False,
    )
