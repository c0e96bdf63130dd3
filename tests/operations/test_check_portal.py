"""The command check-portal: a line per step, what is wrong and what to do, and the exit code."""

import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.check_portal import NAME_WIDTH, STATE_WIDTH, check_portal
from service.commands.codes import import_codes
from service.config import Config, read_config
from service.db.connections import Connection
from service.db.encryption import Vault
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.documents.signing.certificate import DEFAULT_FORM, read_pair
from service.portal.addresses import ENVIRONMENTS, find_address_problems
from service.portal.logins import Login
from service.submission import own_clients, signers
from service.submission.signers import Signers
from tests.api_requests import OWN_CLIENT, add_own_client
from tests.conftest import Company, Sandbox, make_company
from tests.fixtures_service import RunCommand
from tests.harness.certificates import Issued, issued, write_pair
from tests.harness.environments import GENEROUS
from tests.operations.test_commands import read_error
from tests.portal.slow_tls import make_authority, slow_path
from tests.portal.test_refused_logins import OTHER, PATIENT, change_client

LIVE = ENVIRONMENTS["production"]
CREDENTIALS = {"PORTAL_CLIENT_ID": "id", "PORTAL_CLIENT_SECRET": "secret"}
SIGNED = {"PORTAL_DOCUMENT_VERSION": "1.1"}
SECRET = {"SECRET_KEY": GENEROUS["SECRET_KEY"]}
PORTAL_STEPS = [
    "addresses",
    "API address",
    "login address",
    "pages address",
    "clock",
    "login",
    "configured certificate",
    "code lists",
]
COMPANY_STEPS = ["profile", "intermediary", "TIN", "certificate"]

#: The steps of a check: name -> (state, text).
Steps = dict[str, tuple[str, str]]


class Check:
    """The fixture check: `await check(company.id, NAME="value")` returns the steps."""

    def __init__(self, environment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        self._environment = environment
        self._capsys = capsys
        self.passed = False

    async def __call__(self, company_id: int | None = None, **variables: str) -> Steps:
        """Run the check and keep in `passed` whether no step failed."""
        config = read_config({**self._environment, **variables})
        self.passed = await run_command(config, check_portal, company_id)
        return read_steps(self._capsys.readouterr().out)


def read_steps(output: str) -> Steps:
    """Return the steps that the command has printed."""
    begin, end = STATE_WIDTH + 1, STATE_WIDTH + NAME_WIDTH + 2
    return {
        line[begin:end].strip(): (line[:begin].strip(), line[end:]) for line in output.splitlines()
    }


def list_states(steps: Steps, *names: str) -> list[str]:
    return [steps[name][0] for name in names]


@pytest.fixture
def check(environment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(environment, capsys)


@pytest.fixture
async def code_files(tmp_path: Path) -> list[Path]:
    """Files with a short list of units and of industries."""
    lists = {"UnitTypes": ["KGM", "ZZX"], "MSICSubCategoryCodes": ["56101"]}
    for name, entries in lists.items():
        listed = [{"Code": code, "Description": code} for code in entries]
        (tmp_path / f"{name}.json").write_text(json.dumps(listed))
    return [tmp_path / f"{name}.json" for name in lists]


@asynccontextmanager
async def opened(environment: dict[str, str], company_id: int) -> AsyncIterator[Connection]:
    """Yield a transaction of a company, to store what requests cannot store."""
    config = read_config({**environment, **SECRET})
    async with (
        connected_pool(config.database_url, 1) as pool,
        Database(pool).company(company_id) as conn,
    ):
        yield conn


async def store_certificate(environment: dict[str, str], company_id: int, made: Issued) -> None:
    """Store a certificate, which may have expired since."""
    vault = Vault(read_config(SECRET).secret_key, b"")
    async with opened(environment, company_id) as conn:
        signer = read_pair(made.certificate_pem, made.key_pem)
        await signers.store(conn, vault, company_id, signer, DEFAULT_FORM)


async def store_own_client(
    environment: dict[str, str], company_id: int, tin: str = "C20880050010"
) -> None:
    login = Login(OWN_CLIENT["client_id"], OWN_CLIENT["client_secret"], own_tin=tin)
    config = read_config({**environment, **SECRET})
    async with opened(environment, company_id) as conn:
        await own_clients.store(conn, config, company_id, login)


# The whole command


async def test_a_complete_installation_passes_every_step(
    command: RunCommand, company: Company, code_files: list[Path], config: Config
) -> None:
    await run_command(config, import_codes, code_files)
    done = await command("check-portal", "--company", company.id)
    assert (done.code, done.err) == (0, ""), done
    steps = read_steps(done.out)
    assert list(steps) == [*PORTAL_STEPS, *COMPANY_STEPS]
    skipped = [name for name, (state, _) in steps.items() if state != "ok"]
    assert skipped == ["configured certificate", "certificate"]
    assert re.fullmatch(r"msic, 1174, of [\d-]+; units, 2164, of [\d-]+", steps["code lists"][1])


async def test_a_failed_step_is_one_line_and_exit_code_1(
    command: RunCommand, company: Company
) -> None:
    done = await command("check-portal", PORTAL_CLIENT_SECRET="wrong")
    assert (done.code, done.err) == (1, ""), done
    lines = [line for line in done.out.splitlines() if line.startswith("failed  login")]
    assert len(lines) == 1 and "The client or its secret is not known." in lines[0]
    assert "Check PORTAL_CLIENT_ID and PORTAL_CLIENT_SECRET" in lines[0]
    assert "wrong" not in done.out


async def test_each_company_with_a_key_is_one_line(
    check: Check, environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    other = await make_company(environment, tin_code=OTHER, phone=None)
    await owner.execute("insert into companies (name, tin_code) values ('No key', 'C1')")
    steps = await check()
    assert not check.passed
    assert list(steps) == [*PORTAL_STEPS, f"company {company.id}", f"company {other.id}"]
    assert steps[f"company {company.id}"] == ("ok", "profile, intermediary, TIN")
    state, text = steps[f"company {other.id}"]
    assert state == "failed" and text.startswith("Failed: profile")
    assert text.endswith(f"Run `run.py check-portal --company {other.id}`.")


async def test_a_database_without_companies_is_no_failure(check: Check) -> None:
    steps = await check()
    assert steps["companies"][0] == "skipped" and "run.py add-key" in steps["companies"][1]


async def test_an_unknown_company_is_rejected_before_any_request(
    command: RunCommand, sandbox: Sandbox
) -> None:
    assert await read_error(command("check-portal", "--company", "7")) == "There is no company 7."
    assert (await sandbox.calls())["calls"] == {}


# Addresses


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({}, None),
        (
            {"portal_web_base": ENVIRONMENTS["preproduction"]["portal_web_base"]},
            "different environments: PORTAL_API_BASE (production), PORTAL_IDENTITY_BASE "
            "(production), PORTAL_WEB_BASE (preproduction)",
        ),
        ({"portal_identity_base": "http://127.0.0.1:8090"}, "PORTAL_IDENTITY_BASE (sandbox)"),
        (
            {"portal_api_base": LIVE["portal_web_base"]},
            "PORTAL_API_BASE must be https://api.myinvois.hasil.gov.my (production), not ",
        ),
        ({"portal_api_base": LIVE["portal_api_base"] + "/api/v1.0"}, "PORTAL_API_BASE must be "),
        ({"portal_api_base": "http://api.myinvois.hasil.gov.my"}, "PORTAL_API_BASE must be "),
        ({"portal_api_base": "https://gateway.example"}, None),
    ],
)
def test_addresses_of_other_environments_and_settings_are_named(
    changes: dict[str, str], problem: str | None
) -> None:
    variables = {name.upper(): address for name, address in {**LIVE, **changes}.items()}
    found = find_address_problems(read_config({**variables, **CREDENTIALS}))
    assert found == [] if problem is None else problem in found[0]


async def test_nothing_is_requested_while_addresses_are_mixed(
    check: Check, company: Company, sandbox: Sandbox
) -> None:
    steps = await check(company.id, PORTAL_WEB_BASE=LIVE["portal_web_base"])
    assert steps["addresses"][0] == "failed"
    skipped = list_states(steps, "clock", "login", "intermediary", "TIN")
    assert skipped == ["skipped"] * 4 and (await sandbox.calls())["calls"] == {}


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"


async def test_unreachable_addresses_are_named_with_what_to_do(
    check: Check, sandbox: Sandbox, silent: str
) -> None:
    steps = await check(
        PORTAL_API_BASE="http://127.0.0.1:1",
        PORTAL_IDENTITY_BASE="https://nohost.invalid",
        PORTAL_WEB_BASE="https://pages.invalid",
    )
    assert steps["API address"] == (
        "failed",
        "Nothing answers at 127.0.0.1:1. "
        "Correct PORTAL_API_BASE, or permit outgoing connections to it.",
    )
    unknown = "The host nohost.invalid is unknown. Correct PORTAL_IDENTITY_BASE"
    assert steps["login address"][1].startswith(unknown)
    assert "Correct PORTAL_WEB_BASE" in steps["pages address"][1]
    assert list_states(steps, "clock", "login") == ["skipped"] * 2
    steps = await check(PORTAL_API_BASE=silent, PORTAL_CONNECT_TIMEOUT_SECONDS="0.2")
    assert "does not answer. Permit outgoing connections" in steps["API address"][1]


async def test_tls_errors_are_named_with_what_to_do(
    check: Check, sandbox: Sandbox, tmp_path: Path
) -> None:
    port = int(sandbox.base.rpartition(":")[2])
    async with slow_path(port, make_authority(tmp_path)) as path:
        steps = await check(
            PORTAL_API_BASE=path.base, PORTAL_IDENTITY_BASE=sandbox.base.replace("http", "https")
        )
    assert "is not trusted (self-signed certificate)" in steps["API address"][1]
    assert "does not speak TLS. Correct PORTAL" in steps["login address"][1]


# Clock and logins


async def test_a_clock_difference_fails_the_check(check: Check, sandbox: Sandbox) -> None:
    await sandbox.move_clock(400)
    state, text = (await check())["clock"]
    assert state == "failed" and "Synchronise the database server's" in text


async def test_a_refused_operator_login_is_attempted_once(
    check: Check, environment: dict[str, str], company: Company, sandbox: Sandbox
) -> None:
    """Further attempts, also for companies, could lock the account."""
    await make_company(environment, tin_code=OTHER)
    await change_client(sandbox, blocked=True)
    steps = await check(company.id, **PATIENT)
    assert "User blocked" in steps["login"][1]
    assert list_states(steps, "login", "intermediary", "TIN") == ["failed", "skipped", "skipped"]
    steps = await check(None, **PATIENT)
    assert "User blocked" in steps["login"][1]
    summary = ("skipped", "Not checked: intermediary, TIN.")
    assert steps[f"company {company.id}"] == summary
    assert await sandbox.count_calls("login") == 1


async def test_a_missing_appointment_is_named_until_the_taxpayer_appoints(
    check: Check, command: RunCommand, company: Company, sandbox: Sandbox
) -> None:
    await change_client(sandbox, represents=[OTHER])
    steps = await check(company.id, **PATIENT)
    state, text = steps["intermediary"]
    assert state == "failed" and "may not act for C20880050010" in text
    assert "must appoint the operator as its intermediary" in text
    assert "`run.py retry-logins --tin C20880050010`" in text
    assert list_states(steps, "login", "TIN") == ["ok", "skipped"]
    await change_client(sandbox)
    assert (await command("retry-logins", "--tin", "c 20880050010", **PATIENT)).code == 0
    steps = await check(company.id, **PATIENT)
    assert list_states(steps, "intermediary", "TIN") == ["ok", "ok"]


async def test_a_portal_without_response_is_no_refused_login(
    check: Check, company: Company, sandbox: Sandbox
) -> None:
    await sandbox.fault("login", "error_before", status=503)
    state, text = (await check(company.id))["login"]
    assert state == "failed" and "Check again in a minute" in text


async def test_a_company_with_its_own_client_logs_in_itself(
    check: Check, environment: dict[str, str], company: Company, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    await store_own_client(environment, company.id)
    await change_client(sandbox, blocked=True)
    steps = await check(company.id, **SECRET)
    assert list_states(steps, "login", "own login", "TIN") == ["failed", "ok", "ok"]
    await add_own_client(sandbox, blocked=True)
    state, text = (await check(company.id, **SECRET))["own login"]
    assert state == "failed" and "User blocked" in text and "Settings, Portal" in text


async def test_own_credentials_of_another_tin_are_named(
    check: Check, environment: dict[str, str], company: Company
) -> None:
    await store_own_client(environment, company.id, OTHER)
    state, text = (await check(company.id, **SECRET))["own login"]
    assert state == "failed" and f"belong to the TIN {OTHER}, not to C20880050010" in text


async def test_a_client_of_one_taxpayer_needs_no_appointment(
    check: Check, company: Company, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    steps = await check(
        company.id,
        PORTAL_INTERMEDIARY="false",
        PORTAL_CLIENT_ID=OWN_CLIENT["client_id"],
        PORTAL_CLIENT_SECRET=OWN_CLIENT["client_secret"],
    )
    assert list_states(steps, "login", "company login", "TIN") == ["ok", "ok", "ok"]


# Profile and TIN


async def test_an_incomplete_profile_names_every_missing_field(
    check: Check, company: Company, owner: asyncpg.Connection
) -> None:
    await owner.execute("update companies set phone = null, registration_number = null")
    steps = await check(company.id)
    state, text = steps["profile"]
    assert state == "failed" and "The registration number is missing. " in text
    assert "The phone number is missing. " in text and "PUT /api/companies" in text
    assert list_states(steps, "intermediary", "TIN") == ["ok", "skipped"]


async def test_nothing_is_requested_for_an_unverified_tin(
    check: Check, company: Company, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await owner.execute("update companies set tin_verified_at = null")
    steps = await check(company.id)
    verify = f"`run.py verify-tin --company {company.id} --tin C20880050010`"
    assert verify in steps["profile"][1] and "PUT /api/companies" not in steps["profile"][1]
    assert list_states(steps, "intermediary", "TIN") == ["skipped", "skipped"]
    assert (await sandbox.calls())["calls"] == {"login": 1}


@pytest.mark.parametrize(
    "fault, text",
    [
        ({"kind": "forget"}, "The portal does not know the TIN C20880050010 with BRN 202001234567"),
        ({"kind": "refuse", "status": 403}, "does not permit the service to validate TINs"),
        ({"kind": "drop", "times": 9}, "The portal is unavailable"),
    ],
)
async def test_a_failed_tin_check_says_why(
    check: Check, company: Company, sandbox: Sandbox, fault: dict[str, Any], text: str
) -> None:
    await sandbox.fault("tin", **fault)
    steps = await check(company.id)
    assert steps["TIN"][0] == "failed" and text in steps["TIN"][1]


# Certificates and code lists

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


async def test_a_company_without_a_certificate_cannot_sign(check: Check, company: Company) -> None:
    steps = await check(company.id, **SIGNED)
    assert steps["configured certificate"][0] == "skipped"
    state, text = steps["certificate"]
    assert state == "failed" and "There is no certificate to sign the document with" in text
    assert "docs/go-live.md" in text


@pytest.mark.parametrize(
    "facts, problem",
    [
        ({}, None),
        ({"not_before": NOW - 9 * DAY, "not_after": NOW - DAY}, "expired on"),
        ({"not_after": NOW + 9 * DAY}, "expires on"),
        ({"not_before": NOW + DAY}, "not valid before"),
        ({"tin": None}, "has no organisation identifier"),
        ({"tin": OTHER}, None),  # of another company, as an intermediary's
    ],
)
async def test_the_certificate_of_a_company_is_checked(
    check: Check,
    environment: dict[str, str],
    company: Company,
    facts: dict[str, Any],
    problem: str | None,
) -> None:
    await store_certificate(environment, company.id, issued(**facts))
    state, text = (await check(company.id, **SIGNED, **SECRET))["certificate"]
    assert state == ("failed" if problem else "ok") and (problem or "can sign") in text


async def test_a_certificate_names_the_company_unless_an_intermediary_submits(
    check: Check, environment: dict[str, str], company: Company, sandbox: Sandbox
) -> None:
    await add_own_client(sandbox)
    await store_own_client(environment, company.id)
    await store_certificate(environment, company.id, issued(tin=OTHER))
    state, text = (await check(company.id, **SIGNED, **SECRET))["certificate"]
    assert state == "failed" and f"is {OTHER}, not the company's TIN" in text


async def test_a_key_that_cannot_be_decrypted_is_named(
    check: Check, environment: dict[str, str], company: Company
) -> None:
    await store_certificate(environment, company.id, issued())
    other_key = {"SECRET_KEY": "A" * 43 + "="}
    state, text = (await check(company.id, **SIGNED, **other_key))["certificate"]
    assert state == "failed" and "cannot be decrypted with the SECRET_KEY" in text


async def test_the_configured_certificate_is_checked_for_itself(
    check: Check, company: Company, tmp_path: Path
) -> None:
    files = write_pair(tmp_path, issued(tin=OTHER, not_after=NOW + 9 * DAY))
    steps = await check(company.id, **SIGNED, **files)
    assert list_states(steps, "configured certificate", "certificate") == ["failed", "failed"]
    assert "expires on" in steps["configured certificate"][1]
    steps = await check(company.id, **SIGNED, **write_pair(tmp_path, issued(tin=OTHER)))
    assert list_states(steps, "configured certificate", "certificate") == ["ok", "ok"]


def test_a_self_signed_certificate_is_rejected_by_a_live_portal_only(tmp_path: Path) -> None:
    variables = {**SIGNED, **write_pair(tmp_path, issued(by="itself"))}
    live = {**{name.upper(): address for name, address in LIVE.items()}, **CREDENTIALS}
    assert Signers(read_config(variables)).find_configured_problems(NOW) == []
    (problem,) = Signers(read_config({**variables, **live})).find_configured_problems(NOW) or []
    assert "self-signed" in problem and "DS329" in problem
