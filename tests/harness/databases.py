"""Databases that exist for a test or a benchmark, on a server that may exist for it too."""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from service.db.connections import TRANSIENT_DB_ERRORS
from service.db.migrations import MIGRATIONS
from service.embedded_postgres.lifecycle import postgres

#: Settings of a server that loses data when the power fails: waiting for the disk would take most
#: of the time. Its databases do not live long enough for autovacuum.
NOT_DURABLE = (
    "fsync = off",
    "full_page_writes = off",
    "max_wal_size = '256MB'",
    "autovacuum = off",
)

STRATEGY = "strategy file_copy"


def add_migration(root: Path, name: str, text: str) -> Path:
    """Return a copy of the folder of migrations, in `root`, with one more."""
    folder = Path(shutil.copytree(MIGRATIONS, root / "migrations"))
    (folder / name).write_text(text)
    return folder


@asynccontextmanager
async def open_connection(url: str, **options: Any) -> AsyncIterator[Any]:
    """Open a connection for the block, with the options of asyncpg.connect."""
    conn = await asyncpg.connect(url, **options)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def provide_server(
    home: Path, durable: bool = True, settings: Sequence[str] = ()
) -> AsyncIterator[str]:
    """Yield the URL of a PostgreSQL: the server of DATABASE_URL, or an embedded one in `home`.

    `settings` are changed before an embedded server starts, such as `shared_buffers = '1GB'`.
    """
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    if settings:
        async with postgres(home) as url:
            await _alter_system(url, settings)
    async with postgres(home) as url:
        if not durable:
            await _make_fast(url)
        yield url


async def _alter_system(url: str, settings: Sequence[str]) -> None:
    """Change settings of a server, which it reads when it starts or reloads them."""
    async with open_connection(url) as conn:
        for setting in settings:
            await conn.execute(f"alter system set {setting}")


async def _make_fast(url: str) -> None:
    """Give up durability, and the cost of a password check, which is most of a connection's."""
    await _alter_system(url, NOT_DURABLE)
    async with open_connection(url) as conn:
        await conn.execute("select pg_reload_conf()")
        if conn.get_server_version().major >= 16:
            await conn.execute("set scram_iterations = 1")
            await conn.execute(f"alter user current_user password '{urlsplit(url).password}'")


@asynccontextmanager
async def create_database(
    server: str,
    template: str | None = None,
    owner: str | None = None,
    conn: asyncpg.Connection | None = None,
) -> AsyncIterator[str]:
    """Create a database and drop it at the end, over `conn` or connections of its own.

    Yields the URL of the database, which has a random name. Nothing may be connected to a template.
    """
    execute = conn.execute if conn else partial(administer, server)
    name = f"scratch_{secrets.token_hex(6)}"
    options = f" template {template} {STRATEGY}" if template else ""
    options += f" owner {owner}" if owner else ""
    await execute(f"create database {name}{options}")
    try:
        yield replace_database(server, name)
    finally:
        await execute(f"drop database {name} with (force)")


async def administer(url: str, statement: str) -> None:
    """Run a statement on a connection of its own."""
    async with open_connection(url) as conn:
        await conn.execute(statement)


def replace_database(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def replace_login(url: str, login: str) -> str:
    """Return the URL of the same database for another name and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{login}@{host}").geturl()


def name_of(url: str) -> str:
    return urlsplit(url).path.strip("/")


async def ask(
    url: str, question: Callable[[asyncpg.Connection], Awaitable[int]], otherwise: int
) -> int:
    """Return the answer to a question over a new connection, `otherwise` if PostgreSQL is down."""
    try:
        conn = await asyncpg.connect(url)
    except TRANSIENT_DB_ERRORS:
        return otherwise
    try:
        return await question(conn)
    except TRANSIENT_DB_ERRORS:
        return otherwise
    finally:
        conn.terminate()


async def end_sessions(owner: asyncpg.Connection, number: int) -> None:
    """Terminate the dedicated sessions of `number` processes in the database of a connection."""
    ended: set[int] = set()
    while len(ended) < number:  # A session that is between two statements is found later.
        found = await owner.fetch(
            """
            select pid, pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()
               and query ~ 'LISTEN|schema_excluding'
            """
        )
        ended.update(row["pid"] for row in found)
