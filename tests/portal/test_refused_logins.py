"""A refused login is stored per taxpayer; all processes and kinds of work respect it."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from service.commands import reconcile
from service.commands.bootstrap import run_command
from service.config import read_config
from service.submission.runner import LONGEST_LOGIN_WAIT
from tests.api.test_validations import TIN
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_invoice
from tests.api_requests import cancel_latest, submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.harness.companies import AUTOMATIC
from tests.operations.test_watchdog import IMPATIENT, count_conditions, get_metrics, get_readiness
from tests.submission.test_batches import wait_for_statuses

OTHER = "C20880050020"
PATIENT = {"PORTAL_LOGIN_RETRY_SECONDS": "600"}


async def change_client(
    sandbox: Sandbox,
    secret: str = "sandbox-secret",
    blocked: bool = False,
    represents: list[str] | None = None,
) -> None:
    """Replace the client in the sandbox: blocked, another secret, or only some taxpayers."""
    body = {
        "client_id": "sandbox-client",
        "client_secret": secret,
        "tin": "C25845632020",
        "intermediary": True,
    }
    more = {} if represents is None else {"represents": represents}
    await sandbox.send("POST", "clients", {**body, "blocked": blocked, **more})


async def let_retry(owner: asyncpg.Connection) -> None:
    """End every pause, as if time had passed."""
    await owner.execute(
        "update refused_logins set retry_at = clock_timestamp() - interval '1 second'"
    )


async def submit_refused(api: Client) -> dict[str, Any]:
    """Submit a new invoice, whose login is refused, and return the error."""
    status, body = await submit(api, await create_invoice(api))
    assert status == 400, body
    assert body["errors"][0]["code"] == "PortalCredentials"
    return body["errors"][0]


async def test_submits_with_refused_credentials_log_in_once(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await change_client(sandbox, blocked=True)
    api = await start(background=False, **PATIENT, PORTAL_RATE_SCALE="1")
    first = await submit_refused(api)
    assert "refuses the login" in first["message"]
    answers = await asyncio.gather(*[submit_refused(api) for _ in range(13)])
    assert all("tried again in" in error["message"] for error in answers)
    calls = (await sandbox.calls())["calls"]
    assert calls["login"] == 1 and "submit" not in calls
    found = await owner.fetchval(
        "select cardinality(taken) from portal_buckets where operation = 'login'"
    )
    assert found == 1


async def test_no_kind_of_work_logs_in_after_a_refused_login(
    start: StartService, environment: dict[str, str], owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """Submit, cancellation, TIN check, poll, automatic submission, search and comparison."""
    api = await start()
    valid, unclear = await create_valid_invoice(api), await create_invoice(api)
    await api.close()
    asleep = await start(background=False)
    await sandbox.fault("submit", "accept_then_drop")
    assert (await submit(asleep, unclear))[0] == 400
    await sandbox.send("POST", "tokens/expire", {})
    await change_client(sandbox, blocked=True)
    await owner.execute("update submissions set not_before = clock_timestamp()")
    await owner.execute(AUTOMATIC)
    before, impatient = (
        await sandbox.count_calls("login"),
        {**PATIENT, "COMPARISON_SECONDS": "0.01"},
    )
    api = await start(background=False, **impatient)
    await submit_refused(api)
    waiting = await create_invoice(api, isReady=True)
    assert (await cancel_latest(api, valid))[0] == 400
    async with api.post("/api/validation/tin", json=TIN) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) == LONGEST_LOGIN_WAIT.total_seconds()
    result = await run_command(read_config({**environment, **impatient}), reconcile.reconcile)
    assert result["failed"] == 1 and "refused the login" in result["companies"][0]["error"]
    await start(**impatient)
    later = (
        "select bool_and(not_before > clock_timestamp() + interval '4 minutes')"
        "  from submissions where state <> 'NotReceived'"
    )
    await until(lambda: owner.fetchval(later))
    assert (await get_invoice(api, waiting))["status"] == "Submitting"
    states = await owner.fetch("select distinct state from submissions order by 1")
    assert [row["state"] for row in states] == ["Accepted", "NotReceived", "Queued", "Uncertain"]
    assert await sandbox.count_calls("login") == before + 1


async def test_a_refused_login_is_shared_by_processes_and_survives_a_restart(
    start: StartService, sandbox: Sandbox
) -> None:
    await change_client(sandbox, blocked=True)
    first = await start(background=False, **PATIENT)
    await submit_refused(first)
    await first.close()
    await asyncio.gather(
        *[submit_refused(await start(background=False, **PATIENT)) for _ in range(2)]
    )
    assert await sandbox.count_calls("login") == 1


async def test_changed_credentials_are_tried_at_once(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await change_client(sandbox, secret="replaced")
    await submit_refused(await start(background=False, **PATIENT))
    api = await start(background=False, **PATIENT, PORTAL_CLIENT_SECRET="replaced")
    await create_submitted_invoice(api)
    assert await sandbox.count_calls("login") == 2
    stored = str(await owner.fetch("select r::text from refused_logins r"))
    assert "sandbox-secret" not in stored and "replaced" not in stored


async def test_a_refused_login_of_one_taxpayer_does_not_block_others(
    start: StartService, environment: dict[str, str], sandbox: Sandbox
) -> None:
    await change_client(sandbox, represents=[OTHER])
    other = await make_company(environment, name="Kedai Lain Sdn. Bhd.", tin_code=OTHER)
    await submit_refused(await start(background=False, **PATIENT))
    neighbour = await start(other, background=False, **PATIENT)
    await create_submitted_invoice(neighbour)


async def test_a_refused_client_is_tried_once_for_all_taxpayers(
    start: StartService,
    company: Company,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    sandbox: Sandbox,
) -> None:
    await change_client(sandbox, blocked=True)
    companies = [company]
    companies += [
        await make_company(environment, tin_code=f"C208800501{n}0") for n in range(10, 14)
    ]
    services = [await start(each, background=False, **PATIENT) for each in companies]
    await submit_refused(services[0])
    for n in (1, 2):
        await asyncio.gather(*[submit_refused(api) for api in services])
        assert await sandbox.count_calls("login") == n
        await let_retry(owner)
    assert [row["taxpayer"] for row in await owner.fetch("select * from refused_logins")] == [""]
    await change_client(sandbox, represents=[OTHER])
    await submit_refused(services[0])
    rows = await owner.fetch("select taxpayer from refused_logins")
    assert [row["taxpayer"] for row in rows] == ["C20880050010"]
    await change_client(sandbox)
    assert (await submit(services[1], await create_invoice(services[1])))[0] == 200


async def test_the_login_pause_doubles_up_to_an_hour_until_a_success(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await change_client(sandbox, blocked=True)
    api = await start(background=False, **PATIENT)
    for minutes in (10, 20, 40, 60, 60):
        await submit_refused(api)
        pause = "select retry_at - clock_timestamp() as pause from refused_logins"
        (row,) = await owner.fetch(pause)
        assert timedelta(minutes=minutes - 1) < row["pause"] <= timedelta(minutes=minutes)
        await let_retry(owner)
    assert await sandbox.count_calls("login") == 5
    await change_client(sandbox)
    await create_submitted_invoice(api)
    assert await owner.fetchval("select count(*) from refused_logins") == 0


async def test_one_process_retries_after_the_login_pause(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await change_client(sandbox, blocked=True)
    pair = [await start(background=False, **PATIENT) for _ in range(2)]
    await submit_refused(pair[0])
    await let_retry(owner)
    await sandbox.fault("login", "slow", seconds=0.3)
    await asyncio.gather(*[submit_refused(api) for api in pair * 3])
    assert await sandbox.count_calls("login") == 2
    assert await owner.fetchval("select refusals from refused_logins") == 2


async def test_automatic_submissions_resume_after_an_accepted_login(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await owner.execute(AUTOMATIC)
    await change_client(sandbox, blocked=True)
    api = await start()
    ids = [await create_invoice(api, isReady=True) for _ in range(3)]
    await until(lambda: owner.fetchval("select refusals > 1 from refused_logins"))
    await change_client(sandbox)
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 3}
    assert await owner.fetchval("select count(*) from refused_logins") == 0


async def test_a_refused_new_token_counts_as_a_refused_login(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    api = await start(background=False, **PATIENT)
    await sandbox.fault("submit", "unauthorized", times=2)
    assert "refuses a new token" in (await submit_refused(api))["message"]
    assert await owner.fetchval("select reason from refused_logins") == "token"
    await asyncio.gather(*[submit_refused(api) for _ in range(5)])
    assert await sandbox.count_calls("login") == 2


async def test_a_token_that_is_refused_again_doubles_the_pause(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The login itself succeeds each time. Only an accepted request ends the pause."""
    api = await start(background=False, **PATIENT)
    await sandbox.fault("submit", "unauthorized", times=4)
    await submit_refused(api)
    await let_retry(owner)
    await submit_refused(api)
    assert await owner.fetchval("select refusals from refused_logins") == 2
    await let_retry(owner)
    await create_submitted_invoice(api)
    assert await owner.fetchval("select count(*) from refused_logins") == 0


async def test_a_refused_login_is_shown_to_the_operator(
    start: StartService, environment: dict[str, str], sandbox: Sandbox
) -> None:
    config = read_config({**environment, **PATIENT})
    api = await start(background=False, **IMPATIENT, **PATIENT)
    assert (await get_readiness(api))["status"] == "ok"
    await change_client(sandbox, blocked=True)
    await submit_refused(api)
    await until(lambda: count_conditions(api), lambda found: found == {"CredentialsRefused": 1})
    assert (await get_metrics(api))['einvoice_attention{kind="CredentialsRefused"}'] == 1
    (shown,) = (await run_command(config, reconcile.attention))["refused_logins"]
    assert shown["client_id"] == "sandbox-client"
    assert (shown["taxpayer"], shown["refusals"]) == ("", 1)
    assert "User blocked" in shown["message"] and "PORTAL_CLIENT_SECRET" in shown["what_to_do"]
    assert shown["since"] < shown["retry_at"]
    await change_client(sandbox)
    assert await run_command(config, reconcile.retry_logins, "C1") == {"forgotten": 1}
    assert await run_command(config, reconcile.retry_logins, None) == {"forgotten": 0}
    await create_submitted_invoice(api)
    await until(lambda: count_conditions(api), lambda found: not found)


@pytest.mark.parametrize("intermediary, taxpayer", [("true", "C20880050010"), ("false", "")])
async def test_a_refused_login_is_stored_per_login_identity(
    start: StartService,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    intermediary: str,
    taxpayer: str,
) -> None:
    await change_client(sandbox, represents=[OTHER], blocked=intermediary == "false")
    await submit_refused(await start(background=False, **PATIENT, PORTAL_INTERMEDIARY=intermediary))
    assert await owner.fetchval("select taxpayer from refused_logins") == taxpayer
