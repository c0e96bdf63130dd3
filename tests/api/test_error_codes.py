"""The codes of errors: the table is complete, and each failure has its code."""

import ast
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import hold_sending
from service.config import read_config
from service.documents import states
from service.errors import CODES, CONSTRAINTS, ApiError, Unauthorized
from service.http.error_responses import HTTP_ERRORS
from service.submission.machine.failures import FAILURES, name_failure
from tests.api.test_openapi import API, resolve
from tests.api.test_specification_rules import statuses_of
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import expect
from tests.conftest import Client, Company, Sandbox, StartService
from tests.harness.bodies import invoice, now
from tests.harness.paths import ROOT
from tests.portal.test_refused_logins import change_client
from tests.submission.test_needs_person import STUCK

TOO_OLD = now(hours=80)
#: Seconds of a Retry-After of the portal, longer than a test takes.
LONG_WAIT = 300


# The table


def list_default_codes(error: type[ApiError] = ApiError) -> set[str]:
    """Return the codes of the classes of errors. A 401 has none."""
    own = set() if error is Unauthorized else {error.code}
    return own.union(*map(list_default_codes, error.__subclasses__()))


def list_literal_codes() -> set[str]:
    """Return the codes that the service passes as `code="…"`. The sandbox passes the portal's."""
    return {
        keyword.value.value
        for path in (ROOT / "service").rglob("*.py")
        if "sandbox" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "code"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    }


def list_used_codes() -> set[str]:
    tables = (*states.CANCEL_MESSAGES.values(), states.NOTE_MESSAGES, FAILURES)
    return (
        list_default_codes()
        | list_literal_codes()
        | {states.ALREADY_CANCELLED["code"], states.TIN_NOT_VERIFIED["code"]}
        | {code for code, _ in HTTP_ERRORS.values()}
        | {make_error().code for make_error in CONSTRAINTS.values()}
        | {code for table in tables for code in table}
    )


def test_the_table_has_exactly_the_codes_that_are_used() -> None:
    assert list_used_codes() == CODES.keys()


def test_codes_of_the_service_are_not_those_of_the_authority() -> None:
    assert CODES.keys() & states.CANCEL_CODES.keys() == set()


def iterate_examples() -> Iterator[tuple[str, int, Any]]:
    """Yield (operation, status, body) of each error in the description of the API."""
    for path, methods in API["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                media = resolve(response).get("content", {}).get("application/json", {})
                for example in media.get("examples", {}).values() if status >= "400" else ():
                    yield f"{method} {path}", int(status), example["value"]


def test_every_described_error_has_a_code_with_its_status() -> None:
    examples = list(iterate_examples())
    assert len({operation for operation, _, _ in examples}) > 50
    for operation, status, body in examples:
        if status == 401:
            assert "code" not in body, operation
        elif operation != "get /readyz" or "message" in body:  # a check that fails is no error
            assert status in statuses_of(body["code"]), (operation, body)


# Failures


class Setting(NamedTuple):
    """A service without background work, and the means to make it fail."""

    api: Client
    start: StartService
    company: Company
    owner: asyncpg.Connection
    sandbox: Sandbox
    environment: dict[str, str]


@pytest.fixture
async def setting(
    idle: Client,
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    environment: dict[str, str],
) -> Setting:
    return Setting(idle, start, company, owner, sandbox, environment)


#: Causes a failure of the next submission, and returns the changes of its invoice.
Cause = Callable[[Setting], Awaitable[dict[str, Any]]]


async def break_a_rule(setting: Setting) -> dict[str, Any]:
    return {"issueDateTime": TOO_OLD}


async def let_the_portal_reject(setting: Setting) -> dict[str, Any]:
    await setting.sandbox.fault("submit", "foreign")
    return {}


async def disconnect_the_portal(setting: Setting) -> dict[str, Any]:
    await setting.sandbox.fault("login", "drop", times=2)
    return {}


async def throttle_the_portal(setting: Setting) -> dict[str, Any]:
    await setting.sandbox.fault("submit", "throttle", retry_after=LONG_WAIT)
    return {}


async def refuse_credentials(setting: Setting) -> dict[str, Any]:
    await setting.sandbox.send("POST", "tokens/expire", {})
    await change_client(setting.sandbox, blocked=True)
    return {}


async def lose_the_response(setting: Setting) -> dict[str, Any]:
    await setting.sandbox.fault("submit", "accept_then_drop")
    return {}


async def hold(setting: Setting) -> dict[str, Any]:
    found = await run_command(read_config(setting.environment), hold_sending, "A restore.")
    assert found == {"held": 1}
    return {}


async def find_the_number(setting: Setting) -> dict[str, Any]:
    await setting.owner.execute(
        "insert into findings (company_id, kind, tin, number, document_type, uuid)"
        " select id, 'orphan', tin_code, 'INV-00700', '01', 'X' from companies where id = $1",
        setting.company.id,
    )
    return {"code": 700}


async def unverify_the_tin(setting: Setting) -> dict[str, Any]:
    await setting.owner.execute("update companies set tin_verified_at = null")
    return {}


class Failed(NamedTuple):
    """The code of a failure, whether it is retryable, and its Retry-After."""

    code: str
    is_retryable: bool
    wait: str | None = None


REJECTED = Failed("document_rejected", False)
BROKEN = Failed("check_failed", False)
AWAY = Failed("portal_unavailable", True, "30")
NO_CREDENTIALS = Failed("portal_credentials_refused", True, "300")
UNKNOWN = Failed("outcome_unknown", True, "10")
HELD = Failed("sending_held", True, "60")
AT_PORTAL = Failed("number_at_portal", True, "300")
UNVERIFIED = Failed("tin_not_verified", True, "300")
MANUAL_REVIEW = Failed("manual_review", True, "300")


async def fail(api: Client, path: str) -> tuple[Failed, dict[str, Any]]:
    """Send a request that fails with a 400. Return its failure and its body."""
    async with api.post(path, json={}) as response:
        body = await response.json()
        assert response.status == 400, body
        wait = response.headers.get("Retry-After")
        return Failed(body["code"], body.get("retryable", False), wait), body


async def fail_to_submit(api: Client, invoice_id: int) -> Failed:
    """Submit an invoice, and return its failure."""
    failed, body = await fail(api, f"/api/invoices/{invoice_id}/submit-to-portal")
    assert list(body) == ["message", "code", "retryable", "errors"] and body["errors"], body
    assert body["message"] == states.SUBMIT_FAILED
    return failed


@pytest.mark.parametrize(
    "cause, failed",
    [
        (break_a_rule, BROKEN),
        (let_the_portal_reject, REJECTED),
        (disconnect_the_portal, AWAY),
        (refuse_credentials, NO_CREDENTIALS),
        (lose_the_response, UNKNOWN),
        (hold, HELD),
        (find_the_number, AT_PORTAL),
        (unverify_the_tin, UNVERIFIED),
    ],
)
async def test_a_failed_submission_has_its_code(
    setting: Setting, cause: Cause, failed: Failed
) -> None:
    invoice_id = await create_invoice(setting.api, **await cause(setting))
    assert await fail_to_submit(setting.api, invoice_id) == failed


async def test_a_throttled_submission_says_how_long_the_portal_asks_to_wait(
    setting: Setting,
) -> None:
    """Also while the pause lasts, and to another document."""
    await throttle_the_portal(setting)
    first, second = [await create_invoice(setting.api) for _ in range(2)]
    for invoice_id in (first, first, second):
        check_long_wait(await fail_to_submit(setting.api, invoice_id))


def check_long_wait(failed: Failed) -> None:
    """Check that the client is asked to wait for LONG_WAIT, less what has passed."""
    assert failed.wait is not None and LONG_WAIT - 60 < int(failed.wait) <= LONG_WAIT
    assert failed._replace(wait=AWAY.wait, is_retryable=True) == AWAY


@pytest.mark.parametrize(
    "cause, status, failed",
    [
        (disconnect_the_portal, "Submitting", AWAY),
        (throttle_the_portal, "Submitting", AWAY),
        (refuse_credentials, "Submitting", NO_CREDENTIALS),
        (lose_the_response, "Submitting", UNKNOWN),
        (break_a_rule, "Draft", BROKEN),
        (let_the_portal_reject, "Draft", REJECTED),
        (find_the_number, "Draft", AT_PORTAL),
        (unverify_the_tin, "Draft", UNVERIFIED),
    ],
)
async def test_an_immediate_submission_has_its_code_in_data(
    setting: Setting, cause: Cause, status: str, failed: Failed
) -> None:
    body = invoice(submitImmediately=True, **await cause(setting))
    data = (await expect(setting.api, 201, "POST", "/api/invoices", json=body))["data"]
    assert (data["status"], data["code"]) == (status, failed.code) and data["errors"]


async def test_a_repeated_submission_has_the_code_of_its_state(setting: Setting) -> None:
    await lose_the_response(setting)
    invoice_id = await create_invoice(setting.api)
    assert await fail_to_submit(setting.api, invoice_id) == UNKNOWN
    await setting.owner.execute(STUCK, await setting.owner.fetchval("select id from submissions"))
    assert await fail_to_submit(setting.api, invoice_id) == MANUAL_REVIEW


async def test_a_refused_tin_check_says_to_wait_for_minutes(setting: Setting) -> None:
    for cause, status in ((refuse_credentials, 503), (unverify_the_tin, 400)):
        await cause(setting)
        request = {
            "tin": "IG40125678090",
            "registration_type": "NRIC",
            "registration_number": "880214145566",
        }
        async with setting.api.post("/api/validation/tin", json=request) as response:
            assert response.status == status
            assert int(response.headers["Retry-After"]) >= 300


def test_an_absent_document_has_the_code_not_received() -> None:
    assert name_failure("NotReceived", [{"code": "NotReceived"}]) == "not_received"


async def test_a_throttled_cancellation_says_how_long_the_portal_asks_to_wait(
    setting: Setting,
) -> None:
    path = await submit_to_cancel(setting)
    await setting.sandbox.fault("state", "throttle", retry_after=LONG_WAIT)
    for _ in range(2):
        check_long_wait((await fail(setting.api, path))[0])


@pytest.mark.parametrize(
    "fault, code, wait",
    [
        ({"kind": "drop", "times": 2}, "outcome_unknown", "10"),
        ({"kind": "refuse", "code": "Another"}, "cancellation_failed", "300"),
        ({"kind": "refuse", "code": "IncorrectState"}, "IncorrectState", None),
    ],
)
async def test_a_failed_cancellation_has_its_code(
    setting: Setting, fault: dict[str, Any], code: str, wait: str | None
) -> None:
    path = await submit_to_cancel(setting)
    await setting.sandbox.fault("state", **fault)
    assert (await fail(setting.api, path))[0] == Failed(code, False, wait)


@pytest.mark.parametrize(
    "cause, code",
    [
        (refuse_credentials, "portal_credentials_refused"),
        (unverify_the_tin, "tin_not_verified"),
    ],
)
async def test_a_cancellation_that_is_not_sent_has_its_code(
    setting: Setting, cause: Cause, code: str
) -> None:
    path = await submit_to_cancel(setting)
    await cause(setting)
    assert (await fail(setting.api, path))[0] == Failed(code, False, "300")


async def submit_to_cancel(setting: Setting) -> str:
    """Make an invoice Valid, and return the path that cancels it."""
    worker = await setting.start(setting.company)
    invoice_id = await create_valid_invoice(worker)
    await worker.close()
    return f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted"
