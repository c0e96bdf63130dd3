"""A rolling upgrade under load: two versions of the service side by side on one database."""

import asyncio
import os
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from service.db.compatibility import newest_number, read_migrations
from service.version import VERSION
from tests.api_requests import request_json
from tests.conftest import Company, Sandbox, until
from tests.deployment.test_nginx import Load, Site, check_each_is_stored_once, enter_site
from tests.harness.bodies import invoice
from tests.harness.nginx import needs_nginx
from tests.harness.paths import ROOT
from tests.harness.processes import ChildProcess, free_port
from tests.operations.test_migration_logins import create_login

pytestmark = [pytest.mark.long, needs_nginx]

NEXT_VERSION = "99.0.0"
#: The view of invoices loses its order of columns, so that it is dropped and created again.
FILES = {
    "service/version.py": (f'"{VERSION}"', f'"{NEXT_VERSION}"'),
    "sql/views/invoice_records.sql": (
        "       is_ready,\n",
        "       next_member,\n       is_ready,\n",
    ),
    "sql/functions/documents/document_number.sql": (
        "create or",
        "-- The next version has another text.\ncreate or",
    ),
}
MIGRATION = f"""-- compatible: {newest_number(read_migrations())}
alter table documents add column next_member int default 7;
grant select (next_member) on documents to einvoice_service;
comment on column documents.next_member is 'Member of the next version.';
"""


class NextVersion(ChildProcess):
    """A command of the next version, which is in another folder."""

    has_own_interpreter = True


@pytest.fixture
def next_root(tmp_path: Path) -> Path:
    """Return a copy of the service with another version, a migration and changed objects."""
    root = tmp_path / "next"
    for name in ("service", "sql", "schemas"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "run.py", root)
    for name, (old, new) in FILES.items():
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new, 1))
    (root / "sql" / "migrations" / "9000_next.sql").write_text(MIGRATION)
    return root


class Upgrade:
    """Processes of the present version, which those of the next one replace."""

    def __init__(self, environment: Mapping[str, str], home: Path, next_root: Path) -> None:
        self.environment, self._home, self._next_root = environment, home, next_root
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Upgrade":
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.__aexit__(None, None, None)

    def present(self, name: str, *arguments: str, port: int = 0) -> ChildProcess:
        return self._make(ChildProcess, name, arguments, port)

    def next(self, name: str, *arguments: str, port: int = 0) -> ChildProcess:
        process = self._make(NextVersion, f"next-{name}", arguments, port)
        process.root = self._next_root
        return process

    def _make(
        self, kind: type[ChildProcess], name: str, arguments: tuple[str, ...], port: int
    ) -> ChildProcess:
        variables = {**self.environment, "PORT": str(port), "PYTHONPATH": ""}
        ready = "/readyz" if port else None
        return kind(arguments, variables, self._home / f"{name}.log", port, ready)

    async def run(self, process: ChildProcess) -> ChildProcess:
        """Run a process until the end."""
        return await self._stack.enter_async_context(process)

    async def replace(self, old: ChildProcess, new: ChildProcess) -> None:
        """Stop a process, and run another one in its place."""
        assert await old.stop() == 0
        await self.run(new)

    async def open_site(self, company: Company) -> Site:
        """Start two API processes and nginx."""
        serve = ("serve", "--no-background")
        processes = [
            await self.run(self.present(f"api-{number}", *serve, port=free_port()))
            for number in (1, 2)
        ]
        return await enter_site(self._stack, processes, self._home / "nginx", company)

    async def migrate(self, owner_url: str) -> str:
        """Run the migration of the next version, and return what it printed."""
        done = await asyncio.create_subprocess_exec(
            *[sys.executable, "run.py", "migrate"],
            cwd=self._next_root,
            env={**os.environ, **self.environment, "DATABASE_URL": owner_url, "PYTHONPATH": ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await done.communicate()
        assert done.returncode == 0, out.decode()
        return out.decode()


@pytest.fixture
async def upgrade(
    cluster: str, environment: dict[str, str], database: str, tmp_path: Path, next_root: Path
) -> AsyncIterator[Upgrade]:
    """Yield an upgrade of processes that have the rights of the service only."""
    async with create_login(cluster, database, "einvoice_service") as login:
        values = {"DATABASE_URL": login, "REQUESTS_PER_MINUTE": "0"}
        async with Upgrade({**environment, **values}, tmp_path, next_root) as upgrade:
            yield upgrade


class SubmittingLoad(Load):
    """Load whose invoices are submitted, half of them by a request of their own."""

    async def store(self, key: str) -> int:
        """Create and submit an invoice, and return its id."""
        is_automatic = int(key.rpartition("-")[2]) % 2 == 0
        body = invoice(submitImmediately=is_automatic)
        invoice_id = (await self.post(key, "/api/invoices", body))["data"]["id"]
        if not is_automatic:
            place = f"/api/invoices/{invoice_id}/submit-to-portal"
            await self.post(f"{key}-submit", place, {})
        return invoice_id


async def read_version(port: int) -> str:
    async with aiohttp.ClientSession() as client:
        return (await request_json(client, "GET", f"http://127.0.0.1:{port}/healthz"))[1]["version"]


async def test_rolling_upgrade_fails_no_request_and_sends_each_document_once(
    upgrade: Upgrade, company: Company, sandbox: Sandbox, database: str
) -> None:
    site = await upgrade.open_site(company)
    first, second = site.processes
    worker = await upgrade.run(upgrade.present("worker", "worker"))
    load, serve = SubmittingLoad(site), ("serve", "--no-background")

    async def roll() -> None:
        migrated = await upgrade.migrate(database)
        assert all(
            name in migrated for name in ("9000_next.sql", "document_number.sql", "_records.sql")
        )
        await load.go_on()
        assert await first.stop() == 0  # An old process restarts on the newer schema.
        await first.start()
        assert await read_version(first.port) == VERSION
        for old in (first, second):
            await load.go_on()
            await upgrade.replace(old, upgrade.next(f"api-{old.port}", *serve, port=old.port))
            assert await read_version(old.port) == NEXT_VERSION
        await load.go_on()
        await upgrade.replace(worker, upgrade.next("worker", "worker"))

    await load.run(roll)
    assert load.failed_reads == [] and load.repeated == []
    await check_each_is_stored_once(site, load)
    _, found = await request_json(site.client, "GET", f"/api/invoices/{load.created['0-1']}")
    assert found["next_member"] == 7
    await until(
        lambda: request_json(site.client, "GET", "/api/invoices?status=Valid&per_page=1"),
        lambda answer: answer[1]["meta"]["total"] == len(load.created),
    )
    numbers = Counter(document["number"] for document in await sandbox.ledger())
    assert len(numbers) == len(load.created) and set(numbers.values()) == {1}


async def test_upgrade_that_excludes_running_processes_is_refused(
    upgrade: Upgrade, company: Company, database: str, next_root: Path
) -> None:
    migration = next_root / "sql" / "migrations" / "9000_next.sql"
    migration.write_text(MIGRATION.partition("\n")[2])
    process = await upgrade.run(upgrade.present("api", "serve", port=free_port()))
    with pytest.raises(AssertionError, match="An older version of the service is running"):
        await upgrade.migrate(database)
    assert await process.stop() == 0
    assert "9000_next.sql" in await upgrade.migrate(database)
    with pytest.raises(RuntimeError, match=r"newer version of the service \(9000_next.sql\)"):
        await process.start()
