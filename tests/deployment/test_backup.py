"""Backup and restore with the blocks of docs/backup.md, on PostgreSQL servers of their own."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from service.embedded_postgres.binaries import find_programs
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice, get_json, wait_for_status
from tests.api_requests import expect, submit
from tests.conftest import Sandbox, until
from tests.harness.bodies import now
from tests.harness.companies import Company
from tests.harness.installation import API_UNITS, WORKER_UNIT, Installation, read_blocks
from tests.harness.paths import ROOT

PROGRAMS = ("psql", "pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup")
LACKING = [name for name in PROGRAMS if not (find_programs().bin / name).exists()]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(LACKING), reason=f"{find_programs().bin} has no {', '.join(LACKING)}"),
]

BLOCKS = read_blocks("docs/backup.md")
#: What a person puts into the first line of a restore, which the test sets itself.
TARGET = "Restore to a point in time"


@dataclass
class Shop:
    """A company with an installation, and its documents before and after a backup."""

    installation: Installation
    company: Company
    sandbox: Sandbox
    api: aiohttp.ClientSession
    valid: int = 0
    draft: int = 0
    waiting: int = 0

    async def store_before(self) -> None:
        """Store a valid invoice, a draft, and an invoice that waits for a worker."""
        self.valid = await create_valid_invoice(self.api, code=1)
        self.draft = await create_invoice(self.api, code=2, issueDateTime=now(minutes=3))
        await self.installation.paste(f"systemctl stop {WORKER_UNIT}")
        self.waiting = await create_invoice(self.api, code=3, submitImmediately=True)

    async def send_after(self) -> None:
        """Submit the draft, the invoice that waits, and a new one."""
        assert (await submit(self.api, self.draft))[0] == 200
        await wait_for_status(self.api, self.waiting, "Valid")
        await create_valid_invoice(self.api, code=4, issueDateTime=now(minutes=3))
        assert await self.read_ledger() == {f"INV-0000{code}": 1 for code in (1, 2, 3, 4)}

    async def read_ledger(self) -> dict[str, int]:
        """Return how often each number is at the portal."""
        return Counter(document["number"] for document in await self.sandbox.ledger())

    async def read_fingerprints(self) -> list[str]:
        await self.installation.paste("".join(BLOCKS["Drill"]))
        return (self.installation.backups / "fingerprints").read_text().splitlines()

    async def attention(self) -> dict[str, Any]:
        """Return what needs a person."""
        return json.loads(await self.installation.paste("einvoice attention"))

    async def check_comparison(self) -> None:
        """Check that a restored database finds all documents again and sends none twice."""
        assert await self._submit_refused(self.draft) in ("SendingHeld", "NumberAtPortal")
        await wait_for_status(self.api, self.waiting, "Valid")
        [block] = BLOCKS["Compare with the portal"]
        await self.installation.paste(block)
        found = await until(self.attention, lambda result: len(result["findings"]) == 2)
        assert {one["number"] for one in found["findings"]} == {"INV-00002", "INV-00004"}
        assert {one["kind"] for one in found["findings"]} == {"orphan"} and len(found["holds"]) == 1
        assert await self._submit_refused(self.draft) == "NumberAtPortal"
        again = await create_invoice(self.api, code=4)
        assert await self._submit_refused(again) == "NumberAtPortal"
        await self._resolve(found["findings"], [self.draft, again])
        await create_valid_invoice(self.api, code=5)
        assert (await get_invoice(self.api, self.valid))["status"] == "Valid"
        assert await self.read_ledger() == {f"INV-0000{code}": 1 for code in (1, 2, 3, 4, 5)}

    async def _submit_refused(self, invoice_id: int) -> str:
        """Return the code of the error of a submit."""
        status, body = await submit(self.api, invoice_id)
        assert status == 400, body
        return body["errors"][0]["code"]

    async def _resolve(self, findings: list[dict[str, Any]], drafts: list[int]) -> None:
        """Keep the documents at the portal, and wait for the end of the hold."""
        for draft in drafts:
            await expect(self.api, 200, "DELETE", f"/api/invoices/{draft}")
        ids = " ".join(str(one["id"]) for one in findings)
        await self.installation.paste(f"einvoice resolve-finding {ids} --note 'Kept.'")

        async def is_released() -> bool:
            await self.installation.paste("einvoice reconcile --days 30")
            return not (await self.attention())["holds"]

        await until(is_released)


@pytest.fixture
async def shop(tmp_path: Path, sandbox: Sandbox) -> AsyncIterator[Shop]:
    async with Installation(tmp_path, sandbox.base) as installation:
        company = await installation.add_company()
        base = f"http://127.0.0.1:{installation.ports[API_UNITS[0]]}"
        async with aiohttp.ClientSession(base, headers={"X-API-Key": company.key}) as api:
            yield Shop(installation, company, sandbox, api)


async def test_restored_dump_equals_its_original_and_sends_nothing_twice(shop: Shop) -> None:
    """The dump is restored on another server."""
    installation = shop.installation
    await shop.store_before()
    stop, *restore, start = BLOCKS["Restore a dump"]
    await installation.paste(stop)
    original = await shop.read_fingerprints()
    await installation.paste("".join(BLOCKS["Dump"]))
    await installation.paste(start)
    await shop.send_after()
    await installation.paste(stop)
    await installation.move_to_new_server()
    roles, data, transactions = restore
    await installation.paste(roles + data)
    restored = await shop.read_fingerprints()
    assert restored == original and len(original) > 30
    await installation.paste(transactions + start)
    await shop.check_comparison()
    events = (await get_json(shop.api, "/api/events"))["data"]
    assert [one["type"] for one in events].count("invoice.created") == 5


async def test_point_in_time_restore_equals_its_moment_and_sends_nothing_twice(shop: Shop) -> None:
    installation = shop.installation
    await installation.paste("".join(BLOCKS["Archive"]))
    await shop.store_before()
    _, stop, put_back, recover, start = BLOCKS[TARGET]
    await installation.paste("systemctl stop $UNITS")
    original = await shop.read_fingerprints()
    conn = await installation.connect()
    target = str(await conn.fetchval("select clock_timestamp()"))
    await conn.close()
    await installation.paste(start)
    await shop.send_after()
    for block in (stop, put_back, recover):
        await installation.paste(block, TARGET=target)
    assert await shop.read_fingerprints() == original
    await installation.paste(start)
    await shop.check_comparison()
    await check_archiver(installation)


async def check_archiver(installation: Installation) -> None:
    """Check that the server archives its new timeline."""
    conn = await installation.connect()
    switched = str(await conn.fetchval("select pg_walfile_name(pg_switch_wal())"))
    assert switched.startswith("00000002")
    archived = "select failed_count = 0 and last_archived_wal >= $1 from pg_stat_archiver"
    await until(lambda: conn.fetchval(archived, switched))
    await conn.close()


async def test_restore_without_a_target_loses_nothing_that_was_archived(shop: Shop) -> None:
    """The server is killed, and its data directory survives."""
    installation = shop.installation
    await installation.paste("".join(BLOCKS["Archive"]))
    await shop.store_before()
    await installation.paste(f"systemctl start {WORKER_UNIT}")
    await shop.send_after()
    await installation.paste("systemctl stop $UNITS")
    original = await shop.read_fingerprints()
    await installation.postgres.stop("immediate")
    _, stop, put_back, recover, start = BLOCKS[TARGET]
    for block in (stop, put_back, recover):
        await installation.paste(block, TARGET="")
    assert await shop.read_fingerprints() == original
    await installation.paste(start)
    [compare] = BLOCKS["Compare with the portal"]

    async def is_released() -> bool:
        await installation.paste(compare)
        return not (await shop.attention())["holds"]

    await until(is_released)
    await create_valid_invoice(shop.api, code=5)
    assert await shop.read_ledger() == {f"INV-0000{code}": 1 for code in (1, 2, 3, 4, 5)}


async def test_dump_as_the_owner_fails_or_lacks_rows(shop: Shop, tmp_path: Path) -> None:
    """Row-level security is forced. A role with bypassrls and the right to read sees all rows."""
    installation = shop.installation
    await create_invoice(shop.api, code=1)
    url = installation.read_secret("database-owner-url")
    with pytest.raises(AssertionError, match="would be affected by row-level security policy"):
        await installation.paste(f"pg_dump --file=/dev/null {url}")
    dump = f"pg_dump --data-only --inserts --table=documents {{}} {{}} > {tmp_path}/dump"
    await installation.paste(dump.format("--enable-row-security", url))
    assert "INSERT" not in (tmp_path / "dump").read_text()
    conn = await installation.connect()
    page = (ROOT / "docs" / "backup.md").read_text()
    await conn.execute(page.partition("```sql\n")[2].partition("```")[0])
    await conn.execute("alter role einvoice_backup password 'backup'")
    await conn.close()
    url = f"postgresql://einvoice_backup:backup@127.0.0.1:{installation.postgres.port}/einvoice"
    await installation.paste(dump.format("", url))
    assert (tmp_path / "dump").read_text().count("INSERT") == 1
    await installation.paste(f"pg_dump --file=/dev/null {url}")
