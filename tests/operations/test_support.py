"""Support staff: the login that `make run` prints, and the questions that sql/inspect/ answers."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from service.embedded_postgres.binaries import find_programs
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import Client, Company, StartService
from tests.harness.bodies import invoice, line, note
from tests.harness.environments import GENEROUS
from tests.harness.inspections import FOLDER, INSPECTIONS, VALUES, fill_inspection
from tests.harness.processes import Service, free_port


@pytest.fixture
async def support_url(tmp_path: Path) -> AsyncIterator[str]:
    """The address of the login that a start with the embedded PostgreSQL prints."""
    environment = {
        "DATABASE_URL": "",
        "DATA_DIR": str(tmp_path / "data"),
        "SANDBOX_PORT": str(free_port()),
    }
    async with Service(environment, tmp_path / "service.log") as service:
        yield re.findall(r'psql "(\S+)"', await service.printed("psql:  "))[0]


async def _run_psql(url: str, path: Path) -> None:
    """Run a file with psql. Fails if psql reports an error."""
    process = await asyncio.create_subprocess_exec(
        *[find_programs().bin / "psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1"],
        *[f"--set={name}={value}" for name, value in VALUES.items()],
        *[f"--file={path}", url],
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert (process.returncode, err) == (0, b""), path


async def test_the_printed_login_runs_all_inspections_and_reads_no_secret(support_url: str) -> None:
    for path in INSPECTIONS:
        await _run_psql(support_url, path)
    support = await asyncpg.connect(support_url)
    assert await support.fetchval("select count(*) from companies") == 1
    rights = "select rolsuper or rolbypassrls from pg_roles where rolname = current_user"
    assert await support.fetchval(rights) is False
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await support.fetch("select secret_sha256 from api_keys")
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await support.execute("update companies set name = 'x'")
    await support.execute("set default_transaction_read_only = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await support.execute("update companies set name = 'x'")
    await support.close()


# Questions


@pytest.fixture
async def api(start: StartService) -> Client:
    return await start(**GENEROUS)


class Inspector:
    """Runs the files of sql/inspect/ for one company."""

    def __init__(self, owner: asyncpg.Connection, company: Company) -> None:
        self._owner, self._company = owner, company

    async def __call__(self, name: str, **values: object) -> list[dict[str, Any]]:
        text = fill_inspection(FOLDER / f"{name}.sql", company_id=self._company.id, **values)
        return [dict(row) for row in await self._owner.fetch(text)]


@pytest.fixture
def inspect(owner: asyncpg.Connection, company: Company) -> Inspector:
    return Inspector(owner, company)


async def _number(api: Client, invoice_id: int) -> str:
    _, export = await request_json(api, "GET", f"/api/invoices/{invoice_id}/export")
    return export["invoiceCodeWithPrefixAndDigits"]


async def test_drafts_and_submitted_documents_are_found_by_their_numbers(
    api: Client, inspect: Inspector
) -> None:
    sent, draft = await create_valid_invoice(api), await create_invoice(api)
    [found] = await inspect("document_find", number=await _number(api, sent))
    [document] = await get_documents(api, sent)
    assert (found["document"], found["uuid"]) == (f"invoice {sent}", document["uuid"])
    [found] = await inspect("document_find", number=await _number(api, draft))
    assert (found["document"], found["uuid"]) == (f"invoice {draft}", None)
    # The number under which it was submitted still finds it after a change of the prefix.
    number = await _number(api, sent)
    _, answer = await request_json(api, "GET", "/api/companies")
    setting = {**answer["data"]["setting"], "INVOICE_PREFIX": "NEW-"}
    await expect(api, 200, "PUT", "/api/companies", json={"setting": setting})
    for each in (number, await _number(api, sent)):
        expected = [f"invoice {sent}"]
        assert [row["document"] for row in await inspect("document_find", number=each)] == expected
    assert await inspect("document_find", number="INV-99999") == []


async def test_the_history_of_a_document_names_who_cancelled_it_and_why(
    api: Client, inspect: Inspector, company: Company
) -> None:
    sent = await create_valid_invoice(api)
    number = await _number(api, sent)
    assert (await cancel_latest(api, sent, reason="Wrong buyer"))[0] == 200
    [row] = await inspect("document_cancellations", number=number)
    assert row["who"].startswith(f"key {company.key_id} (") and row["reason"] == "Wrong buyer"
    assert row["cancelled_at"] is not None and row["status"] == "Cancelled"
    history = [row["what"] for row in await inspect("document_history", number=number)]
    assert set(history[:2]) == {"invoice.created", "create"}
    assert {"submit", "cancel", "first sent"} < set(history)


async def test_the_reasons_of_a_rejection_are_shown(
    api: Client, inspect: Inspector, sandbox: Any
) -> None:
    sent = await create_invoice(api)
    await sandbox.fault("submit", "reject")
    assert (await submit(api, sent))[0] == 400
    [row] = await inspect("document_rejections", number=await _number(api, sent))
    [document] = await get_documents(api, sent)
    assert row["status"] == "Rejected" and row["message"] == document["errors"][0]["message"]


async def test_cancellable_documents_are_listed_with_what_prevents_it(
    api: Client, inspect: Inspector
) -> None:
    noted, free, gone = [await create_valid_invoice(api) for _ in range(3)]
    path = f"/api/invoices/{noted}/adjustment-note"
    _, made = await request_json(api, "POST", path, json=note())
    note_id = made["data"]["id"]
    send = f"/api/adjustment-notes/{note_id}/submit-to-portal"
    await expect(api, 200, "POST", send, json={})
    assert (await cancel_latest(api, gone))[0] == 200
    listed = {row["document"]: row["refused"] for row in await inspect("cancellable")}
    assert listed.pop(f"adjustment note {note_id}", None) is None
    assert listed == {f"invoice {noted}": "it has notes", f"invoice {free}": None}


async def test_taxes_of_a_month_are_summed_by_type_and_rate(
    api: Client, inspect: Inspector
) -> None:
    lines = [
        line(),
        line(id="2", taxDetails=[{"taxType": "01", "taxRate": {"percentage": 10}}]),
    ]
    for _ in range(2):
        await create_valid_invoice(api, lineItems=lines)
    await create_invoice(api)  # a draft
    issued = datetime.fromisoformat(invoice()["issueDateTime"])
    month = issued.astimezone(ZoneInfo("Asia/Kuala_Lumpur")).strftime("%Y-%m")
    rows = await inspect("taxes_of_month", month=month)
    shown = {(row["type"], row["rate"]): (row["documents"], row["tax"]) for row in rows}
    assert {key: (count, str(tax)) for key, (count, tax) in shown.items()} == {
        ("01", 10): (2, "19.40"),
        ("02", 8): (2, "15.52"),
    }


async def test_the_audit_log_has_old_and_new_values(
    api: Client, inspect: Inspector, company: Company
) -> None:
    for city in ("Ipoh", "Klang"):
        await expect(api, 200, "PUT", "/api/companies", json={"city": city})
    row = (await inspect("audit"))[0]
    assert row["action"] == "change" and company.key_id in row["who"]
    assert json.loads(row["changes"]) == {"city": {"old": "Ipoh", "new": "Klang"}}
