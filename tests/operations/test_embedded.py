"""The embedded PostgreSQL: durability, shared use, killed processes, and errors at start."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import asyncpg
import pytest

from service.embedded_postgres.binaries import (
    EmbeddedError,
    Programs,
    choose_account,
    restrict_account,
)
from service.embedded_postgres.lifecycle import postgres
from tests.harness.databases import open_connection
from tests.harness.paths import ROOT
from tests.harness.postgres_server import launch
from tests.harness.waiting import wait_until

#: A program that runs the database until it reads a line.
OWNER = """
import asyncio, sys
from service.embedded_postgres.lifecycle import postgres

async def main():
    async with postgres(sys.argv[1]) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def made(scratch: Path) -> Iterator[Path]:
    """Yield a data directory that was created and shut down cleanly."""
    with TemporaryDirectory(dir=scratch) as home:
        owner = start_owner(Path(home, "pg"))
        read_url(owner)
        assert end(owner) == 0
        yield Path(home, "pg")


@pytest.fixture
def data(made: Path, scratch: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=scratch) as home:
        subprocess.run(["cp", "-a", made, home], check=True)
        yield Path(home, "pg")


def start_owner(directory: Path) -> subprocess.Popen[str]:
    """Start a process that runs the database."""
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, directory],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def read_url(owner: subprocess.Popen[str]) -> str:
    """Return the database URL that a process printed."""
    assert owner.stdout
    return owner.stdout.readline().strip()


def request_end(owner: subprocess.Popen[str]) -> None:
    """Make a process shut the database down."""
    assert owner.stdin
    owner.stdin.write("\n")
    owner.stdin.flush()


def end(owner: subprocess.Popen[str]) -> int:
    """Close the input of a process and return its exit status."""
    owner.communicate(timeout=30)
    return owner.returncode


def kill(owner: subprocess.Popen[Any]) -> None:
    owner.kill()
    owner.communicate(timeout=30)


async def query(url: str, text: str) -> Any:
    async with open_connection(url) as connection:
        return await connection.fetchval(text)


def postmaster(data: Path) -> int:
    """Return the process id of the server."""
    return int((data / "cluster" / "postmaster.pid").read_text().split()[0])


# A cluster and its server


async def test_new_cluster_is_durable_utf8_and_private(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "pg"
    async with postgres(data) as url:
        settings = {
            **dict.fromkeys(("fsync", "full_page_writes", "data_checksums"), "on"),
            "server_encoding": "UTF8",
            "timezone": "UTC",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
        }
        assert {name: await query(url, f"show {name}") for name in settings} == settings
        assert await query(url, "select current_database()") == "einvoice"
        found = await query(
            url,
            "select lower('ÄÖ') || (select string_agg(c, '' order by c) from "
            "(values ('a'), ('B'), ('é')) v (c))",
        )
        assert found == "äöBaé"
        modes = [
            (data / name).stat().st_mode & 0o777
            for name in ("", "cluster", "users.lock", "cluster/superuser_password")
        ]
        assert modes == [0o700, 0o700, 0o600, 0o600]
        with pytest.raises(asyncpg.InvalidPasswordError):
            await query(url.replace("@", "x@"), "select 1")


async def test_server_stops_after_the_last_use(data: Path) -> None:
    async with postgres(data) as url:
        pass
    with pytest.raises(OSError):
        await query(url, "select 1")


async def test_terminal_interrupt_does_not_reach_the_server(data: Path) -> None:
    async with postgres(data):
        assert os.getpgid(postmaster(data)) != os.getpgid(0)


# Several processes


async def test_second_process_shares_the_running_server(data: Path) -> None:
    async with postgres(data) as url:
        second = start_owner(data)
        assert read_url(second) == url
        assert end(second) == 0
        assert await query(url, "select 1") == 1


async def test_server_outlives_the_process_that_started_it(data: Path) -> None:
    owner = start_owner(data)
    started = read_url(owner)
    async with postgres(data) as url:
        assert end(owner) == 0
        assert url == started
        assert await query(url, "select 1") == 1
    with pytest.raises(OSError):
        await query(url, "select 1")


@pytest.mark.parametrize("name", ["made", "new"])
async def test_concurrent_starts_share_one_server(data: Path, name: str) -> None:
    """Also if each of them finds no cluster."""
    directory = data if name == "made" else data / "new"
    owners = [start_owner(directory) for _ in range(3)]
    (url,) = {read_url(owner) for owner in owners}
    assert [end(owner) for owner in owners[1:]] == [0] * 2
    assert await query(url, "select 1") == 1
    assert end(owners[0]) == 0
    with pytest.raises(OSError):
        await query(url, "select 1")


async def test_start_during_the_last_stop_starts_a_new_server(data: Path) -> None:
    owner = start_owner(data)
    old = read_url(owner)
    request_end(owner)
    async with postgres(data) as url:
        assert await query(url, "select 1") == 1
        assert end(owner) == 0
        assert await query(url, "select 1") == 1
    assert old != ""


# Killed processes


async def test_commit_survives_a_kill_of_the_owner(data: Path) -> None:
    """The next start replaces the unused server, and the last process stops it."""
    owner = start_owner(data)
    url = read_url(owner)
    await query(url, "create table kept as select 42 as answer")
    kill(owner)
    async with postgres(data) as again:
        assert await query(again, "select answer from kept") == 42
        with pytest.raises((OSError, asyncpg.PostgresError)):
            await query(url, "select 1")
    with pytest.raises(OSError):
        await query(again, "select 1")


async def commit_and_kill(url: str, data: Path) -> None:
    await query(url, "create table kept as select 42 as answer")
    os.kill(postmaster(data), signal.SIGKILL)


async def read_kept(data: Path) -> object:
    async with postgres(data) as url:
        return await query(url, "select answer from kept")


async def test_killed_server_is_started_again_for_the_next_process(data: Path) -> None:
    async with postgres(data) as url:
        await commit_and_kill(url, data)
        assert await read_kept(data) == 42


async def test_cancelled_start_leaves_no_server(data: Path) -> None:
    starting = asyncio.create_task(postgres(data).__aenter__())
    await wait_until(lambda: (data / "cluster" / "postmaster.pid").exists(), 60)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not (data / "cluster" / "postmaster.pid").exists()


async def test_commit_survives_a_kill_of_the_server(data: Path) -> None:
    async with postgres(data) as url:
        await commit_and_kill(url, data)
    assert await read_kept(data) == 42


async def test_interrupted_initialisation_is_repeated(tmp_path: Path) -> None:
    owner = start_owner(tmp_path / "pg")
    await wait_until(lambda: list((tmp_path / "pg").glob("making-*/cluster/base")), 30)
    kill(owner)
    assert not (tmp_path / "pg" / "cluster").exists()
    async with postgres(tmp_path / "pg") as url:
        assert await query(url, "select current_database()") == "einvoice"
        assert not list((tmp_path / "pg").glob("making-*"))


@pytest.mark.parametrize("alive", [False, True], ids=["of the dead", "of a stranger"])
async def test_stale_pid_file_does_not_prevent_a_start(data: Path, alive: bool) -> None:
    async with postgres(data):
        pid_file = (data / "cluster" / "postmaster.pid").read_text()
    stranger = launch(["sleep", "60"], choose_account(data))
    try:
        if not alive:
            kill(stranger)
        (data / "cluster" / "postmaster.pid").write_text(
            pid_file.replace(pid_file.split()[0], str(stranger.pid), 1)
        )
        async with postgres(data) as url:
            assert await query(url, "select 1") == 1
        assert alive == (stranger.poll() is None)
    finally:
        kill(stranger)


# Users


async def test_private_parent_directory_is_supported(tmp_path: Path) -> None:
    """Root, who changes to another user, and other users can use a directory of `mktemp -d`."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    async with postgres(closed / "checkout" / "pg") as url:
        assert await query(url, "select 1") == 1
    owner = (closed / "checkout" / "pg" / "cluster").stat().st_uid
    assert owner == os.geteuid() if os.geteuid() else owner != 0
    assert closed.stat().st_mode & 0o777 == 0o700


def test_root_keeps_only_needed_privileges() -> None:
    directory = Path(mkdtemp())
    try:
        (directory / "postgres").write_text("#!/bin/sh\necho here\n")
        (directory / "postgres").chmod(0o755)
        programs, account = Programs(directory, 18, "here\n"), choose_account(directory)
        kept = []
        for mode in (0o755, 0o700):
            directory.chmod(mode)
            restricted = restrict_account(account, programs, directory)
            kept.append(restricted and restricted.capability)
        assert kept == ([None, None] if account is None else ["", "dac_read_search"])
    finally:
        shutil.rmtree(directory)


async def test_directory_of_another_user_is_rejected(data: Path) -> None:
    if os.geteuid() == 0:
        os.chown(data / "cluster", 0, 0)
    else:
        data.chmod(0)
    try:
        with pytest.raises(EmbeddedError, match="start as "):
            async with postgres(data):
                pass
    finally:
        data.chmod(0o700)


# Error messages


async def test_data_of_another_major_version_is_rejected(data: Path) -> None:
    (data / "cluster" / "PG_VERSION").write_text("9\n")
    with pytest.raises(
        EmbeddedError, match=r"created by PostgreSQL 9, which is not installed .installed: .*\d"
    ):
        async with postgres(data):
            pass


async def test_directory_without_a_version_file_is_rejected(data: Path) -> None:
    (data / "cluster" / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedError, match="not a PostgreSQL data directory any more"):
        async with postgres(data):
            pass


async def test_failed_start_shows_the_log_and_releases_the_directory(data: Path) -> None:
    configuration = data / "cluster" / "postgresql.conf"
    good = configuration.read_text()
    configuration.write_text(good + "nonsense = 1\n")
    with pytest.raises(EmbeddedError, match='unrecognized configuration parameter "nonsense"'):
        async with postgres(data):
            pass
    configuration.write_text(good)
    async with postgres(data) as url:
        assert await query(url, "select 1") == 1


async def test_error_of_the_caller_is_raised_unchanged(data: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with postgres(data):
            raise FileNotFoundError
