"""A TIN belongs to one company, and is verified before anything is done in its name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import (
    OperatorError,
    share_tin,
    unshare_tin,
    verify_tin,
)
from service.commands.reconcile import reconcile
from service.config import Config, ConfigError, read_config
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.documents.states import CANCEL_FAILED, SUBMIT_FAILED, TIN_NOT_VERIFIED
from service.documents.ubl import parties
from service.errors import CONSTRAINTS
from tests.api.test_companies import SETTING, company_record, put, update
from tests.api.test_consolidated_invoices import PLACE as CONSOLIDATED
from tests.api.test_consolidated_invoices import create_consolidated, sale
from tests.api.test_validations import TIN, check_tin
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_lock, wait_for_status
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import DEMO_COMPANY, Client, Company, Sandbox, StartService, make_company
from tests.fixtures_service import RunCommand
from tests.harness.bodies import invoice, note
from tests.harness.databases import open_connection
from tests.operations.test_commands import read_error, read_result

OWN, OTHER = DEMO_COMPANY["tin_code"], "C20880059990"
TAKEN = {
    "message": "This TIN is already used by another company. "
    "Ask the operator of the service to share it between both companies.",
    "code": "tin_taken",
}
UNVERIFIED = {
    "message": SUBMIT_FAILED,
    "code": "tin_not_verified",
    "errors": [TIN_NOT_VERIFIED],
    "retryable": True,
}
MOVE = "update companies set tin_code = $2 where id = $1"


@pytest.fixture
async def stranger(start: StartService, environment: dict[str, str]) -> Client:
    """A client of another company with the TIN OTHER."""
    return await start(await make_company(environment, tin_code=OTHER))


async def get_portal_calls(sandbox: Sandbox) -> dict[str, int]:
    return (await sandbox.calls())["calls"]


async def get_entries(owner: asyncpg.Connection, company_id: int) -> list[tuple[Any, ...]]:
    rows = await owner.fetch(
        "select actor, action, subject from audit_log where company_id = $1 order by id", company_id
    )
    return [tuple(row) for row in rows]


# Comparison of TINs


async def test_sql_and_python_normalise_a_tin_alike(owner: asyncpg.Connection) -> None:
    """Test all characters of the basic plane except letters whose case depends on the locale."""
    characters = [chr(n) for n in range(1, 0x10000) if not 0xD800 <= n <= 0xDFFF]
    odd = [
        f"c{char}1 {char}-x"
        for char in characters
        if char.isascii() or char.upper() == char.lower() == char
    ]
    texts = [*odd, "", " - ", "ig 4012-5678090", "\ufeffC2088\u200b0050010\u2060", "C\t\r\n1"]
    rows = await owner.fetch(
        "select tin, normalised_tin(tin) as is_now from unnest($1::text[]) tin", texts
    )
    assert len(rows) == len(texts) > 20_000
    assert [row for row in rows if row["is_now"] != parties.get_own_tin({"tin": row["tin"]})] == []


# One company per TIN


@pytest.mark.parametrize("spelling", [OTHER, OTHER.lower(), "C 2088-005 9990-"])
async def test_a_tin_of_another_company_is_a_conflict(
    api: Client, stranger: Client, company: Company, spelling: str
) -> None:
    before = await company_record(api)
    assert await put(api, tin_code=spelling, name="Somebody else") == (409, TAKEN)
    assert await company_record(api) == before


@pytest.mark.own_service
async def test_a_company_can_spell_its_own_tin_differently(api: Client) -> None:
    verified = (await company_record(api))["tin_verified_at"]
    after = await update(api, tin_code="c2088 0050-010")
    assert after["tin_code"] == "c2088 0050-010"
    assert (after["tin_verified"], after["tin_verified_at"]) == (True, verified)


@asynccontextmanager
async def open_transaction(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection in a transaction, which is rolled back unless the block ends it."""
    async with open_connection(url) as conn:
        await conn.execute("begin")
        yield conn


@pytest.mark.parametrize("end, taken", [("commit", True), ("rollback", False)])
async def test_a_tin_in_an_open_transaction_is_waited_for(
    environment: dict[str, str], database: str, owner: asyncpg.Connection, end: str, taken: bool
) -> None:
    ids = [(await make_company(environment)).id for _ in range(2)]
    async with open_transaction(database) as first, open_transaction(database) as second:
        await first.execute(MOVE, ids[0], OTHER)
        task = asyncio.create_task(second.execute(MOVE, ids[1], OTHER))
        await wait_for_lock(owner)
        await first.execute(end)
        if taken:
            with pytest.raises(asyncpg.UniqueViolationError):
                await task
        else:
            assert await task == "UPDATE 1"


async def test_direct_sql_cannot_assign_one_tin_to_two_companies(
    environment: dict[str, str], owner: asyncpg.Connection, company: Company
) -> None:
    other = await make_company(environment)
    insert = "insert into companies (name, tin_code) values ('x', $1)"
    for statement, values in (
        (MOVE, (other.id, OWN)),
        (MOVE, (other.id, OWN.lower())),
        (insert, (OWN,)),
        ("update companies set tin_code = $1", (OTHER,)),
    ):
        with pytest.raises(asyncpg.UniqueViolationError) as refused:
            await owner.execute(statement, *values)
        error: Any = refused.value
        assert error.constraint_name == "companies_tin_once"
    with pytest.raises(asyncpg.FeatureNotSupportedError):
        async with owner.transaction(isolation="repeatable_read"):
            await owner.execute(MOVE, other.id, OTHER)
    for _ in range(2):
        await owner.execute(insert, " ")  # companies without a TIN do not conflict


async def test_a_tin_reveals_only_the_ids_of_its_companies(
    environment: dict[str, str], company: Company, stranger: Client
) -> None:
    """The function returns the ids for one exact TIN. The service sees no rows of the company."""
    async with (
        connected_pool(environment["DATABASE_URL"], 1) as pool,
        Database(pool).company(company.id) as connection,
    ):
        conn: Any = connection
        assert [row["id"] for row in await conn.fetch("select id from companies")] == [company.id]
        assert await conn.fetchval("select companies_of_tin('')") == []
        assert len(await conn.fetchval("select companies_of_tin($1)", OTHER)) == 1


# Sharing


async def test_several_companies_can_use_a_shared_tin(
    api: Client, stranger: Client, company: Company, owner: asyncpg.Connection, command: RunCommand
) -> None:
    verify = "update companies set tin_verified_at = now() where id <> $1"
    made = await read_result(
        command("share-tin", "--tin", OWN.lower(), "--note", "Branches of one taxpayer")
    )
    assert made == {
        "tin": OWN,
        "note": "Branches of one taxpayer",
        "shared_at": made["shared_at"],
        "companies": [company.id],
    }
    assert (await get_entries(owner, company.id))[-1] == ("command", "share", f"TIN {OWN}")
    assert (await update(stranger, tin_code=OWN))["tin_code"] == OWN
    await owner.execute(verify, company.id)
    found = await read_error(command("unshare-tin", "--tin", OWN))
    assert found.startswith(f"Companies {company.id}, ")
    await update(stranger, tin_code=OTHER)
    assert await read_result(command("unshare-tin", "--tin", OWN)) == {"tin": OWN, "unshared": True}
    assert (await get_entries(owner, company.id))[-1] == ("command", "unshare", f"TIN {OWN}")
    assert await put(stranger, tin_code=OWN) == (409, TAKEN)


async def test_an_unused_tin_can_be_shared(config: Config, environment: dict[str, str]) -> None:
    assert (await run_command(config, share_tin, OTHER, "Two shops"))["companies"] == []
    ids = [(await make_company(environment, tin_code=OTHER)).id for _ in range(2)]
    assert (await run_command(config, share_tin, OTHER, "Three shops"))["companies"] == ids
    assert (await run_command(config, unshare_tin, "C99"))["unshared"] is False


async def test_sharing_needs_a_tin(config: Config, owner: asyncpg.Connection) -> None:
    for text in ("?", ""):
        with pytest.raises(OperatorError, match="is not a TIN"):
            await run_command(config, share_tin, text, "x")
    assert await owner.fetchval("select count(*) from shared_tins") == 0


# Verification


async def test_a_changed_tin_is_stored_unverified_and_shown(
    api: Client, owner: asyncpg.Connection
) -> None:
    before = await company_record(api)
    assert (
        before["tin_verified"] is True and before["readiness"] == [] and before["tin_verified_at"]
    )
    after = await update(api, tin_code=OTHER)
    assert after["tin_code"] == OTHER
    assert (after["tin_verified"], after["tin_verified_at"]) == (False, None)
    assert after["is_company_ready"] is False
    assert after["readiness"] == [{**TIN_NOT_VERIFIED, "path": "/tin_code"}]
    assert (await update(api, tin_code=OTHER, city="Ipoh"))["tin_verified"] is False
    assert (await update(api, tin_code=OWN))["tin_verified"] is False


async def test_automatic_verification_verifies_at_once(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(TIN_VERIFICATION="automatic")
    after = await update(api, tin_code=OTHER)
    assert after["tin_verified"] is True and after["is_company_ready"] is True
    await create_valid_invoice(api)
    assert [entry["taxpayer"] for entry in await sandbox.ledger()] == [OTHER]


@pytest.mark.parametrize(
    "environ, value",
    [
        ({}, "automatic"),
        ({"TIN_VERIFICATION": "operator"}, "operator"),
        ({"PORTAL_API_BASE": "https://portal.example"}, "operator"),
        (
            {"PORTAL_API_BASE": "https://portal.example", "TIN_VERIFICATION": "automatic"},
            "automatic",
        ),
    ],
)
def test_verification_is_automatic_only_with_the_sandbox_by_default(
    environ: dict[str, Any], value: str
) -> None:
    needed = {
        f"PORTAL_{name}": "https://x"
        for name in ("IDENTITY_BASE", "WEB_BASE", "CLIENT_ID", "CLIENT_SECRET")
    }
    assert read_config({**needed, **environ}).tin_verification == value
    with pytest.raises(ConfigError, match="TIN_VERIFICATION must be one of operator, automatic"):
        read_config({"TIN_VERIFICATION": "never"})


#: Facts of the demo company without which a company is ready.
OPTIONAL = {"zip_code", "email", "sst_registration_number"}


async def test_readiness_names_all_missing_members_of_a_company(
    start: StartService, environment: dict[str, str]
) -> None:
    bare = dict.fromkeys(DEMO_COMPANY.keys() - {"name", "tin_code"})
    api = await start(await make_company(environment, **bare, tin_code="X1"))
    readiness = (await company_record(api))["readiness"]
    assert {(lack["path"], lack["code"]) for lack in readiness} == {
        ("/tin_code", "Format"),
        *((f"/{name}", "Required") for name in bare.keys() - OPTIONAL),
    }
    assert all(lack["message"].endswith(".") for lack in readiness)
    await update(
        api,
        country="MYS",
        phone="12",
        email="x",
        zip_code="123456",
        registration_number="?",
        msic_code="00000",
    )
    readiness = (await company_record(api))["readiness"]
    assert [(lack["path"], lack["code"]) for lack in readiness] == [
        ("/tin_code", "Format"),
        ("/registration_number", "Format"),
        ("/registration_type", "Required"),
        ("/state", "Required"),
        ("/zip_code", "Format"),
        ("/city", "Required"),
        ("/address", "Required"),
        ("/phone", "Format"),
        ("/email", "Format"),
    ]


@pytest.mark.parametrize(
    "changes, lacking",
    [
        ({"address": "NA", "city": "", "country": ""}, []),
        ({"address": " NA ", "city": "", "zip_code": ""}, []),
        ({"address": "NA", "state": ""}, ["/state"]),
        (
            {"address": "NA", "state": "", "city": "", "country": ""},
            ["/country", "/state", "/city"],
        ),
        ({"address": "NA", "state": "17", "country": ""}, ["/state"]),
        ({"address": "N/A", "city": ""}, ["/city"]),
        ({"email": "accounts@kopitiga..example"}, ["/email"]),
        ({"email": ".accounts@kopitiga.example"}, ["/email"]),
        ({"tin_code": "C20880050099"}, ["/tin_code"]),
        ({"tin_code": "C02088005010"}, ["/tin_code"]),
        ({"tin_code": "D10"}, []),
        ({"tin_code": "IG208800500901"}, []),
        ({"tin_code": "IG2088005009012"}, ["/tin_code"]),
        ({"sst_registration_number": "W10-1; W10-2"}, []),
        ({"sst_registration_number": "W10-1;W10-2;W10-3"}, ["/sst_registration_number"]),
        ({"tourism_tax_registration_number": "123 45"}, []),
        ({"tourism_tax_registration_number": "123/45"}, ["/tourism_tax_registration_number"]),
    ],
)
async def test_readiness_agrees_with_preflight(
    api: Client, owner: asyncpg.Connection, changes: dict[str, str], lacking: list[str]
) -> None:
    for name, text in changes.items():
        await owner.execute(f"update companies set {name} = $1", text)
    found = (await company_record(api))["readiness"]
    assert [lack["path"] for lack in found] == lacking
    path = f"/api/invoices/{await create_invoice(api)}/preflight"
    _, checked = await request_json(api, "POST", path, json={"at": "2026-11-01T00:00:00Z"})
    errors = {each["path"] for each in checked["errors"] if each["path"].startswith("/company/")}
    assert errors == {f"/company{path}" for path in lacking}


async def test_a_submit_with_an_unverified_tin_is_refused(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(CONSOLIDATION_DAYS="40")
    paths = [
        f"/api/invoices/{await create_invoice(api)}",
        f"{CONSOLIDATED}/{await create_consolidated(api, invoiceIds=[await sale(api)])}",
    ]
    target = await create_valid_invoice(api)
    body = await expect(api, 201, "POST", f"/api/invoices/{target}/adjustment-note", json=note())
    paths.append(f"/api/adjustment-notes/{body['data']['id']}")
    await update(api, tin_code=OTHER)
    before = await sandbox.calls()
    for path in paths:
        assert await request_json(api, "POST", f"{path}/submit-to-portal", json={}) == (
            400,
            UNVERIFIED,
        ), path
        assert (await request_json(api, "GET", path))[1]["status"] == "Draft"
        status, verdict = await request_json(api, "POST", f"{path}/preflight", json={})
        assert (
            status == 200 and verdict["ready"] is False and TIN_NOT_VERIFIED in verdict["errors"]
        ), path
    assert await sandbox.calls() == before


async def test_an_immediate_submit_with_an_unverified_tin_is_refused(
    api: Client, sandbox: Sandbox
) -> None:
    await update(api, tin_code=OTHER, setting={**SETTING, "AUTO_SUBMIT_INVOICE": True})
    for asked in ({"submitImmediately": True}, {"isReady": True}):
        status, body = await request_json(api, "POST", "/api/invoices", json=invoice(**asked))
        assert status == 201 and body["data"]["status"] == "Draft", body
        assert body["data"]["errors"] == [TIN_NOT_VERIFIED]
        assert (await get_invoice(api, body["data"]["id"]))["status"] == "Draft"
    assert await get_portal_calls(sandbox) == {}


async def test_a_cancel_with_an_unverified_tin_is_refused(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    await owner.execute("update companies set tin_verified_at = null")
    before = await sandbox.calls()
    assert await cancel_latest(api, invoice_id) == (
        400,
        {"message": CANCEL_FAILED, "code": "tin_not_verified"},
    )
    assert await sandbox.calls() == before
    assert (await get_invoice(api, invoice_id))["status"] == "Valid"


async def test_a_document_with_a_former_tin_can_be_cancelled(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_valid_invoice(api)
    await update(api, tin_code=OTHER)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    assert [entry["status"] for entry in await sandbox.ledger()] == ["Cancelled"]


async def test_tin_checks_with_an_unverified_own_tin_are_refused(
    api: Client, sandbox: Sandbox
) -> None:
    assert (await check_tin(api, **TIN))[0] == 200
    await update(api, tin_code=OTHER)
    before = await sandbox.calls()
    refusal = {"success": False, "message": TIN_NOT_VERIFIED["message"], "code": "tin_not_verified"}
    assert await check_tin(api, **TIN) == (400, refusal)  # also for a confirmed TIN
    assert await sandbox.calls() == before


async def test_a_refusal_for_an_unverified_tin_is_not_replayed(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_valid_invoice(api)
    await owner.execute("update companies set tin_verified_at = null")
    requests = (
        (f"/api/invoices/{await create_invoice(api)}/submit-to-portal", {}),
        (f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted", {}),
        ("/api/validation/tin", TIN),
    )
    for statuses in ([400] * 3, [200] * 3):
        answers = [
            await request_json(api, "POST", path, json=body, headers={"Idempotency-Key": "again"})
            for path, body in requests
        ]
        assert [status for status, _ in answers] == statuses, answers
        await owner.execute("update companies set tin_verified_at = now()")


async def test_sent_documents_are_polled_while_the_tin_is_unverified(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await sandbox.settings(stuck=True)
    invoice_id = await create_submitted_invoice(api)
    await owner.execute("update companies set tin_verified_at = null")
    await sandbox.settings(stuck=False)
    await wait_for_status(api, invoice_id, "Valid")
    assert (await submit(api, invoice_id))[0] == 200  # already submitted


async def test_the_comparison_skips_an_unverified_tin(
    api: Client, config: Config, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await update(api, tin_code=OTHER)
    await owner.execute(
        "insert into sending_holds (company_id, reason, since)"
        " select id, 'x', now() - interval '1 h' from companies"
    )
    compared = await run_command(config, reconcile)
    assert compared["open"] == 0 and compared["companies"] == []
    assert "search" not in await get_portal_calls(sandbox)
    await owner.execute("update companies set tin_verified_at = now()")
    assert (await run_command(config, reconcile))["companies"][0]["held"] is False


async def test_a_submit_waits_for_a_tin_change_and_is_refused(
    api: Client, company: Company, database: str, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    async with open_transaction(database) as conn:
        await conn.execute("select 1 from companies where id = $1 for update", company.id)
        await conn.execute(
            "update companies set tin_code = $2, tin_verified_at = null where id = $1",
            company.id,
            OTHER,
        )
        task = asyncio.create_task(submit(api, invoice_id))
        await wait_for_lock(owner)
        await conn.execute("commit")
        assert await task == (400, UNVERIFIED)
    assert await get_portal_calls(sandbox) == {}


async def test_concurrent_tin_changes_send_nothing_unverified(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    for turn in range(8):
        invoice_id, other = await create_invoice(api), f"C2088006{turn}990"
        (sent, _), (moved, _) = await asyncio.gather(
            submit(api, invoice_id), put(api, tin_code=other)
        )
        assert (sent, moved) in {(200, 409), (200, 200), (400, 200)}
        if sent == 200:
            await wait_for_status(api, invoice_id, "Valid")
            assert (await get_documents(api, invoice_id))[0]["status"] == "Valid"
        await owner.execute("update companies set tin_code = $1, tin_verified_at = now()", OWN)
    assert {entry["taxpayer"] for entry in await sandbox.ledger()} <= {OWN}


async def test_the_operator_verifies_a_tin(
    api: Client, company: Company, owner: asyncpg.Connection, command: RunCommand
) -> None:
    await update(api, tin_code="c 2088-0059990")
    invoice_id = await create_invoice(api)
    assert (await submit(api, invoice_id))[0] == 400
    wrong = await read_error(command("verify-tin", "--company", company.id, "--tin", OWN))
    assert wrong == f"The TIN of company {company.id} is c 2088-0059990, not {OWN}."
    made = await read_result(command("verify-tin", "--company", company.id, "--tin", OTHER))
    found = await company_record(api)
    assert made == {
        "company_id": company.id,
        "tin": "c 2088-0059990",
        "tin_verified_at": found["tin_verified_at"],
    }
    assert found["tin_verified"] is True and found["is_company_ready"] is True
    assert (await get_entries(owner, company.id))[-1] == ("command", "verify", f"TIN {OTHER}")
    assert await read_result(command("verify-tin", "--company", company.id)) == made
    rows = [entry for entry in await get_entries(owner, company.id) if entry[1] == "verify"]
    assert len(rows) == 1
    assert await owner.fetchval("select count(*) from events where type = 'company.updated'") == 2
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")


async def test_verifying_needs_a_company_with_a_tin(
    config: Config, company: Company, owner: asyncpg.Connection
) -> None:
    with pytest.raises(OperatorError, match=r"^There is no company 999.$"):
        await run_command(config, verify_tin, company_id=999)
    await owner.execute("update companies set tin_code = ' '")
    with pytest.raises(OperatorError, match=f"^Company {company.id} has no TIN.$"):
        await run_command(config, verify_tin, company.id)


# Commands


async def test_adding_a_company_with_a_used_tin_is_refused(
    command: RunCommand, company: Company
) -> None:
    message = await read_error(command("add-company", "--name", "A", "--tin", OWN.lower()))
    assert message == CONSTRAINTS["companies_tin_once"]().message
