"""A company's own client at the portal: set, tested, used for every request, replaced, removed."""

import asyncio
import base64
from typing import Any

import asyncpg
import pytest

from service.commands import reconcile
from service.commands.bootstrap import run_command
from service.commands.companies import share_tin
from service.config import read_config
from service.http.limits import PORTAL_TESTS_PER_MINUTE
from service.submission.context import SUBMISSION_CONTEXT
from tests.api.test_exports import set_setting
from tests.api.test_validations import TIN
from tests.api_invoices import (
    create_invoice,
    create_lost_invoice,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_reads import get_invoice, wait_for_lock, wait_for_status
from tests.api_requests import (
    OWN_CLIENT,
    PORTAL_CREDENTIALS,
    add_own_client,
    cancel_latest,
    expect,
    request_json,
    submit,
)
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.harness.environments import GENEROUS
from tests.portal.test_refused_logins import change_client

KEY = {"SECRET_KEY": GENEROUS["SECRET_KEY"]}
OTHER_KEY = base64.b64encode(b"z" * 32).decode()
TIN_CODE = "C20880050010"
OPERATORS = "sandbox-client"
OWN = OWN_CLIENT["client_id"]
BUSY = (
    "The portal credentials cannot be changed while documents are being submitted, validated or "
    "cancelled. Please try again when the portal has validated them."
)
MISSING = (404, {"message": "Portal credentials not found", "code": "not_found"})


async def set_client(api: Client, **changes: str) -> dict[str, Any]:
    """Set the company's own client and return its record."""
    body = await expect(api, 200, "PUT", PORTAL_CREDENTIALS, json={**OWN_CLIENT, **changes})
    return body["data"]


async def refuse_client(api: Client, **changes: str) -> tuple[int, dict[str, Any]]:
    """Set the company's own client, which fails, and return the response."""
    return await request_json(api, "PUT", PORTAL_CREDENTIALS, json={**OWN_CLIENT, **changes})


async def get_client(api: Client) -> tuple[int, dict[str, Any]]:
    return await request_json(api, "GET", PORTAL_CREDENTIALS)


async def remove_client(api: Client) -> tuple[int, dict[str, Any]]:
    return await request_json(api, "DELETE", PORTAL_CREDENTIALS)


async def get_senders(sandbox: Sandbox) -> list[str]:
    """Return the client id of each document at the portal, in order."""
    return [entry["clientId"] for entry in await sandbox.ledger()]


@pytest.fixture
async def api(start: StartService, sandbox: Sandbox) -> Client:
    """A client of a service whose company has a client of its own at the portal."""
    await add_own_client(sandbox)
    return await start(**KEY)


# The operations


async def test_own_credentials_are_set_shown_without_secret_and_removed(api: Client) -> None:
    assert await get_client(api) == MISSING and await remove_client(api) == MISSING
    record = await set_client(api)
    assert record == {
        "client_id": OWN,
        "tin": TIN_CODE,
        "in_use": True,
        "created_at": record["created_at"],
        "refused": None,
    }
    assert await get_client(api) == (200, {"data": record})
    assert await remove_client(api) == (
        200,
        {"success": True, "message": "Portal credentials removed."},
    )
    assert await get_client(api) == MISSING


async def test_removing_absent_credentials_with_if_match_is_a_404(api: Client) -> None:
    headers = {"If-Match": '"a"'}
    assert await request_json(api, "DELETE", PORTAL_CREDENTIALS, headers=headers) == MISSING
    await set_client(api)
    await expect(api, 412, "DELETE", PORTAL_CREDENTIALS, headers=headers)


async def test_the_portal_must_accept_the_login_before_credentials_take_effect(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    status, body = await refuse_client(api, client_secret="wrong")
    assert status == 400 and body["code"] == "portal_credentials_refused"
    assert body["message"] == (
        "The portal refuses the login with these credentials: The client or its secret is not "
        "known. Nothing was changed."
    )
    await change_client(sandbox, blocked=True)
    await add_own_client(sandbox, blocked=True)
    status, body = await refuse_client(api)
    assert status == 400 and "User blocked." in body["message"]
    assert await get_client(api) == MISSING
    assert await owner.fetchval("select count(*) from portal_credentials") == 0


async def test_unchanged_credentials_are_tested_again(api: Client, sandbox: Sandbox) -> None:
    await set_client(api)
    await add_own_client(sandbox, blocked=True)
    assert (await refuse_client(api))[0] == 400


@pytest.mark.parametrize("kind", ["drop", "error_before", "garbage"])
async def test_credentials_that_cannot_be_tested_do_not_take_effect(
    api: Client, sandbox: Sandbox, kind: str
) -> None:
    await sandbox.fault("login", kind)
    async with api.put(PORTAL_CREDENTIALS, json=OWN_CLIENT) as response:
        assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
        assert (await response.json())["message"].startswith("The portal cannot be reached, so")
    assert await get_client(api) == MISSING


async def test_a_slow_login_test_ends_with_the_wait_of_a_request(
    start: StartService, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    api = await start(**KEY, SUBMIT_WAIT_SECONDS="0.1")
    await sandbox.fault("login", "slow", seconds=2)
    assert (await refuse_client(api))[0] == 503


async def test_credentials_without_a_secret_key_are_refused(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start()
    assert (await refuse_client(api))[0] == 409
    assert await sandbox.count_calls("login") == 0


async def test_tests_of_credentials_are_limited(api: Client) -> None:
    answers = [
        await refuse_client(api, client_secret=f"guess-{n}")
        for n in range(PORTAL_TESTS_PER_MINUTE + 1)
    ]
    assert [status for status, _ in answers] == [400] * PORTAL_TESTS_PER_MINUTE + [429]


# Every request


async def test_every_request_of_the_company_uses_its_own_client(
    api: Client, sandbox: Sandbox, environment: dict[str, str]
) -> None:
    """Submission, poll, TIN check, cancellation, reconciliation and comparison."""
    await set_client(api)
    await change_client(sandbox, blocked=True)
    await sandbox.send("POST", "tokens/expire", {})
    first = await create_valid_invoice(api)
    await expect(api, 200, "POST", "/api/validation/tin", json=TIN)
    assert (await cancel_latest(api, first))[0] == 200
    second = await create_lost_invoice(api, sandbox)
    await wait_for_status(api, second, "Valid")
    result = await run_command(read_config({**environment, **KEY}), reconcile.reconcile)
    assert result["failed"] == 0 and result["companies"][0]["listed"] == 2
    assert await get_senders(sandbox) == [OWN, OWN]


async def test_other_companies_keep_the_operators_client(
    api: Client, start: StartService, environment: dict[str, str], sandbox: Sandbox
) -> None:
    await set_client(api)
    other = await start(await make_company(environment), **KEY)
    await create_valid_invoice(other)
    await create_valid_invoice(api)
    assert await get_senders(sandbox) == [OPERATORS, OWN]


async def test_a_shared_tin_has_a_login_for_each_company(
    api: Client,
    start: StartService,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    company: Company,
    sandbox: Sandbox,
) -> None:
    await set_client(api)
    other = await make_company(environment)
    await run_command(read_config(environment), share_tin, TIN_CODE, "Two branches")
    await owner.execute("update companies set tin_code = $1 where id = $2", TIN_CODE, other.id)
    await owner.execute("update companies set tin_verified_at = now()")
    neighbour = await start(other, **KEY)
    for each in (neighbour, api, neighbour):
        await create_valid_invoice(each)
    assert await get_senders(sandbox) == [OPERATORS, OWN, OPERATORS]


async def test_another_process_uses_changed_credentials_at_once(
    api: Client, start: StartService, sandbox: Sandbox
) -> None:
    other = await start(**KEY)
    await create_valid_invoice(other)
    await set_client(api)
    await create_valid_invoice(other)
    await add_own_client(sandbox, client_id="next", client_secret="next-secret")
    await set_client(api, client_id="next", client_secret="next-secret")
    await create_valid_invoice(other)
    assert (await remove_client(api))[0] == 200
    await create_valid_invoice(other)
    assert await get_senders(sandbox) == [OPERATORS, OWN, "next", OPERATORS]


async def test_own_credentials_are_not_used_for_another_tin(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await set_client(api)
    await owner.execute("update companies set tin_code = 'C20880050020', tin_verified_at = now()")
    assert (await get_client(api))[1]["data"]["in_use"] is False
    await create_valid_invoice(api)
    assert await get_senders(sandbox) == [OPERATORS]


# Changes while documents are under way


async def test_the_login_is_not_changed_while_a_document_is_under_way(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.settings(stuck=True)
    invoice_id = await create_submitted_invoice(api)
    assert await refuse_client(api) == (409, {"message": BUSY, "code": "tin_in_use"})
    assert await sandbox.count_calls("login") == 1
    await sandbox.settings(stuck=False)
    await wait_for_status(api, invoice_id, "Valid")
    await set_client(api)
    await sandbox.settings(stuck=True)
    await create_submitted_invoice(api)
    assert await remove_client(api) == (409, {"message": BUSY, "code": "tin_in_use"})
    await add_own_client(sandbox, client_id="next")
    assert (await set_client(api, client_id="next"))["client_id"] == "next"


async def test_a_refused_client_is_removed_while_automatic_submissions_wait(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """They are sent with the operator's client. The portal refuses the company's own one."""
    await set_client(api)
    await add_own_client(sandbox, client_secret="another")
    await sandbox.send("POST", "tokens/expire", {})
    await set_setting(owner, AUTO_SUBMIT_INVOICE=True)
    invoice_id = await create_invoice(api, isReady=True)
    await until(lambda: owner.fetchval("select last_error from submissions where state = 'Queued'"))
    assert (await remove_client(api))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    assert await get_senders(sandbox) == [OPERATORS]


async def test_nothing_is_sent_with_a_client_that_is_being_removed(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection, database: str
) -> None:
    """A send that has begun waits for the removal. The operator's client sends it later."""
    await set_client(api)
    await set_setting(owner, AUTO_SUBMIT_INVOICE=True)
    removing = await asyncpg.connect(database)
    async with removing.transaction():
        await removing.execute(
            "update portal_credentials set removed_at = now(), sealed_secret = null"
        )
        invoice_id = await create_invoice(api, isReady=True)
        await wait_for_lock(owner)
    await removing.close()
    await wait_for_status(api, invoice_id, "Valid")
    assert await get_senders(sandbox) == [OPERATORS]


async def test_a_listing_of_another_client_does_not_prove_absence(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """A client of another taxpayer sees no document of the company."""
    await add_own_client(sandbox)
    await add_own_client(sandbox, client_id="stranger", tin="C11111111110")
    idle = await start(background=False, **KEY)
    await set_client(idle)
    invoice_id = await create_lost_invoice(idle, sandbox)
    await set_client(idle, client_id="stranger")
    api = await start(**KEY)
    code = "select last_error ->> 'code' = 'OtherClient' and reads > 3 from submissions"
    await until(lambda: owner.fetchval(code))
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"
    await set_client(api)
    await wait_for_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_the_login_is_not_changed_during_a_cancellation(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_valid_invoice(api)
    await owner.execute("update submitted_documents set cancelling_until = now() + interval '1 h'")
    assert await refuse_client(api) == (409, {"message": BUSY, "code": "tin_in_use"})
    assert (await get_invoice(api, invoice_id))["status"] == "Valid"


async def test_a_change_waits_for_a_submission_that_is_being_stored(
    api: Client, owner: asyncpg.Connection, database: str
) -> None:
    """A submission in another transaction holds the company before its document is visible."""
    await create_valid_invoice(api)
    storing = await asyncpg.connect(database)
    async with storing.transaction():
        await storing.execute("select from companies for key share")
        await storing.execute("update submitted_documents set status = 'Submitted'")
        change = asyncio.create_task(refuse_client(api))
        await wait_for_lock(owner)
    assert await change == (409, {"message": BUSY, "code": "tin_in_use"})
    await storing.close()


async def test_concurrent_changes_leave_one_client(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """Two processes change the login while both submit."""
    both = [await start(**KEY), await start(**KEY)]
    for name in ("one", "two"):
        await add_own_client(sandbox, client_id=name)
    ids = [await create_invoice(each) for each in both for _ in range(4)]
    changes = [
        refuse_client(each, client_id=name)
        for each, name in zip([*both, *both], ("one", "two", "two", "one"), strict=True)
    ]
    submissions = [submit(both[n % 2], invoice_id) for n, invoice_id in enumerate(ids)]
    answers = await asyncio.gather(*submissions[:4], *changes, *submissions[4:])
    assert {status for status, _ in answers} <= {200, 409}
    for invoice_id in ids:
        await wait_for_status(both[0], invoice_id, "Valid")
    assert len(await sandbox.ledger()) == len(ids)
    live = "select count(*) <= 1 from portal_credentials where removed_at is null"
    assert await owner.fetchval(live)


async def test_documents_of_former_credentials_are_not_reported_as_missing(
    api: Client, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    """The operator's client does not see them. A later own client sees all."""
    await create_valid_invoice(api)
    await set_client(api)
    await create_valid_invoice(api)
    assert (await remove_client(api))[0] == 200
    await until(
        lambda: owner.fetchval(
            "select max(submitted_at) < now() - interval '1 s' from submitted_documents"
        )
    )
    config = read_config({**environment, **KEY})
    result = await run_command(config, reconcile.reconcile)
    assert result["open"] == 0 and result["companies"][0]["listed"] == 1
    await set_client(api)
    result = await run_command(config, reconcile.reconcile)
    assert result["open"] == 0 and result["companies"][0]["listed"] == 2


# Limits and refusals


async def test_own_client_has_its_own_rate_limits(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await add_own_client(sandbox)
    api = await start(**KEY, PORTAL_RATE_SCALE="1")
    await create_valid_invoice(api)
    await set_client(api)
    await create_valid_invoice(api)
    buckets = await owner.fetch(
        "select client_id, operation, cardinality(taken) as n from portal_buckets"
        " where operation in ('login', 'submit') order by 1, 2"
    )
    assert [tuple(row) for row in buckets] == [
        (OWN, "login", 1),
        (OWN, "submit", 1),
        (OPERATORS, "login", 1),
        (OPERATORS, "submit", 1),
    ]


async def test_a_pause_of_an_own_client_does_not_hold_other_companies(
    api: Client,
    start: StartService,
    environment: dict[str, str],
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    await set_client(api)
    other = await start(await make_company(environment), **KEY)
    await sandbox.fault("submit", "throttle", seconds=600)
    assert (await submit(api, await create_invoice(api)))[0] == 400
    pauses = await owner.fetch(
        "select client_id, operation from portal_buckets where paused_until is not null"
    )
    assert [tuple(row) for row in pauses] == [(OWN, "submit")]
    for each in (api, other):
        assert each.app is not None
        assert not each.app[SUBMISSION_CONTEXT].is_held("submit")
    await create_valid_invoice(other)
    assert (await submit(api, await create_invoice(api)))[0] == 400
    assert await sandbox.count_calls("submit") == 2


async def test_a_refused_own_login_pauses_only_its_own_credentials(
    api: Client,
    start: StartService,
    environment: dict[str, str],
    company: Company,
    sandbox: Sandbox,
) -> None:
    await set_client(api)
    await sandbox.send("POST", "tokens/expire", {})
    await add_own_client(sandbox, client_secret="renewed-secret")
    patient = {**KEY, "PORTAL_LOGIN_RETRY_SECONDS": "600"}
    api = await start(**patient)
    other = await start(await make_company(environment), **patient)
    status, body = await submit(api, await create_invoice(api))
    assert status == 400 and body["errors"][0]["code"] == "PortalCredentials"
    refused = (await get_client(api))[1]["data"]["refused"]
    assert "not known" in refused["message"] and refused["retry_at"] > refused["since"]
    await create_valid_invoice(other)
    logins = await sandbox.count_calls("login")
    assert (await submit(api, await create_invoice(api)))[0] == 400
    assert await sandbox.count_calls("login") == logins
    (shown,) = (await run_command(read_config({**environment, **KEY}), reconcile.attention))[
        "refused_logins"
    ]
    assert shown["company_id"] == company.id and shown["taxpayer"] == TIN_CODE
    assert "Settings, Portal" in shown["what_to_do"]
    assert (await set_client(api, client_secret="renewed-secret"))["refused"] is None
    await create_submitted_invoice(api)


async def test_a_wrong_secret_for_anothers_client_id_does_not_use_its_token(
    api: Client, start: StartService, environment: dict[str, str], sandbox: Sandbox
) -> None:
    """Neither does its refused login pause the other company."""
    await set_client(api)
    stranger = await start(await make_company(environment), **KEY)
    assert (await refuse_client(stranger, client_secret="guess"))[0] == 400
    assert (await refuse_client(stranger, client_id=OPERATORS, client_secret="guess"))[0] == 400
    await sandbox.send("POST", "tokens/expire", {})
    await create_valid_invoice(api)
    await create_valid_invoice(stranger)
    assert await get_senders(sandbox) == [OWN, OPERATORS]


async def test_forgotten_refusals_include_own_clients(
    api: Client, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    await set_client(api)
    await owner.execute(
        "insert into refused_logins (client_id, taxpayer, fingerprint, reason, message, refusals,"
        " since, retry_at) select client_id, '', fingerprint, 'login', 'no', 1, now(),"
        " now() + interval '1 hour' from portal_credentials"
    )
    config = read_config({**environment, **KEY})
    assert await run_command(config, reconcile.retry_logins, "C1") == {"forgotten": 0}
    assert await run_command(config, reconcile.retry_logins, TIN_CODE) == {"forgotten": 1}


# The secret


async def test_the_secret_is_encrypted_and_destroyed_when_replaced(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await set_client(api)
    (row,) = await owner.fetch("select * from portal_credentials")
    assert OWN_CLIENT["client_secret"] not in str(dict(row))
    assert OWN_CLIENT["client_secret"].encode() not in row["sealed_secret"]
    await add_own_client(sandbox, client_id="next")
    await set_client(api, client_id="next")
    rows = await owner.fetch("select sealed_secret, removed_at from portal_credentials order by id")
    assert [(row[0] is None, row[1] is None) for row in rows] == [(True, False), (False, True)]
    log = await owner.fetch("select action, subject from audit_log where subject like 'portal%'")
    assert [tuple(row) for row in log] == [
        ("set", f"portal credentials {OWN}"),
        ("remove", f"portal credentials {OWN}"),
        ("set", "portal credentials next"),
    ]


async def test_an_undecryptable_secret_is_not_replaced_by_the_operators_client(
    api: Client, start: StartService, sandbox: Sandbox
) -> None:
    await set_client(api)
    other = await start(SECRET_KEY=OTHER_KEY)
    status, body = await submit(other, await create_invoice(other))
    assert status == 400 and body["errors"][0]["code"] == "PortalCredentials"
    assert "cannot be decrypted" in body["errors"][0]["message"]
    assert await sandbox.ledger() == []


async def test_a_secret_of_another_company_is_undecryptable(
    api: Client,
    start: StartService,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    sandbox: Sandbox,
) -> None:
    await set_client(api)
    other = await make_company(environment)
    stranger = await start(other, **KEY)
    await owner.execute(
        "insert into portal_credentials (company_id, tin, client_id, fingerprint, sealed_secret)"
        " select $1, (select tin from companies where id = $1), client_id, fingerprint,"
        " sealed_secret from portal_credentials",
        other.id,
    )
    status, body = await submit(stranger, await create_invoice(stranger))
    assert status == 400 and "cannot be decrypted" in body["errors"][0]["message"]
    assert await sandbox.ledger() == []


# Refused logins of TIN checks


OPERATOR_TEXT = (
    "The service cannot log in to the portal. User blocked. Ask the operator of the service to "
    "check its portal credentials. Also check at the portal that the company has appointed the "
    "operator as its intermediary."
)
OWN_TEXT = (
    "The company's own portal credentials do not work. User blocked. An owner or administrator of "
    "the company can replace or remove them on the page Settings, Portal."
)


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_tin_check_says_whose_credentials_are_refused(
    api: Client, sandbox: Sandbox, is_own: bool
) -> None:
    if is_own:
        await set_client(api)
        await add_own_client(sandbox, blocked=True)
    else:
        await change_client(sandbox, blocked=True)
    await sandbox.send("POST", "tokens/expire", {})
    async with api.post("/api/validation/tin", json=TIN) as response:
        body = await response.json()
        assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
    assert body == {
        "success": False,
        "message": OWN_TEXT if is_own else OPERATOR_TEXT,
        "code": "portal_credentials_refused",
    }
