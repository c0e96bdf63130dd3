"""One PostgreSQL server: create its data directory, start it, and stop it.

The caller holds the lock that excludes all other processes from the same directory.
"""

import asyncio
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from service.embedded_postgres.binaries import (
    INSTEAD,
    Account,
    EmbeddedError,
    Programs,
    launch,
)

DATABASE = "einvoice"
INITDB_SECONDS, START_SECONDS = 120, 120  # Recovery on a slow disk takes long.
#: The steps of a stop: fast shutdown, then immediate (the next start recovers), then by force.
STOPS = ((signal.SIGINT, 30), (signal.SIGQUIT, 5), (signal.SIGKILL, 5))
LOG_BYTES = 10_000_000
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # A socket's path is limited to 107 bytes.
    "max_connections": 200,
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "jit": "off",  # Compiling takes longer than the statements of the service.
}
#: Texts in the log of a failed start after which the next attempt can succeed: the port was taken
#: meanwhile, or processes of a killed server are still ending.
TRANSIENT_TEXTS = ("Address already in use", "is still in use")
#: Errors of a server that does not accept connections. A TimeoutError is an OSError.
NO_ANSWER = (OSError, asyncpg.PostgresError, asyncpg.InternalClientError)

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Cluster:
    """A data directory, and the programs and the account that run it."""

    path: Path
    programs: Programs
    account: Account | None


def read_major(cluster: Path) -> int:
    """Return the major version that created the data. Raises EmbeddedError if it cannot be run."""
    owner, user = cluster.stat().st_uid, os.geteuid()
    if owner == 0 or user not in (0, owner):
        raise EmbeddedError(
            f"{cluster} belongs to user {owner}, and PostgreSQL cannot run as that user now: "
            f"start as that user, who must not be root, change the owner, {INSTEAD}."
        )
    try:
        (cluster / "superuser_password").stat()
        return int((cluster / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError):
        raise EmbeddedError(
            f"{cluster} is not a PostgreSQL data directory any more: restore a copy of it, "
            f"move it away to start empty, {INSTEAD}."
        ) from None


async def make_cluster(cluster: Cluster) -> None:
    """Create a data directory elsewhere and rename it, so that an existing one is complete."""
    path, account = cluster.path, cluster.account
    making = Path(tempfile.mkdtemp(prefix="making-", dir=path.parent))
    try:
        change_owner(making, account)
        password = making / "superuser_password"
        write_private(password, secrets.token_urlsafe(24), account)
        await _initdb(making, cluster.programs, account)
        password.rename(making / "cluster" / password.name)
        _sync(making / "cluster")
        (making / "cluster").rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(making, ignore_errors=True)


async def _initdb(making: Path, programs: Programs, account: Account | None) -> None:
    command: list[str | Path] = [
        programs.bin / "initdb",
        "--username=postgres",
        f"--pwfile={making / 'superuser_password'}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--data-checksums",
        "-D",
        making / "cluster",
    ]
    for locale in _locales(programs):
        with open(making / "initdb.log", "wb") as log:
            process = launch(command + locale, account, stdout=log, stderr=log)
            try:
                await wait_until(partial(_is_over, process), INITDB_SECONDS)
            finally:
                process.kill()
                process.wait()
        if process.returncode == 0:
            return
    raise EmbeddedError(
        f"PostgreSQL could not create its data directory in {making.parent}: check that there is "
        f"disk space and that the user has a name, {INSTEAD}. The output of initdb:\n"
        f"{_tail(making / 'initdb.log')}"
    )


def _locales(programs: Programs) -> list[list[str]]:
    """Return the locale options to try. The builtin C.UTF-8 of 17 is the same on every system."""
    if programs.major >= 17:
        return [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    return [["--locale=C.UTF-8"], ["--locale=C"]]


async def start_server(cluster: Cluster, log: Path, stack: AsyncExitStack) -> str:
    """Start the server until the stack ends, and return its URL. Raises EmbeddedError."""
    end = time.monotonic() + START_SECONDS
    if _size(log) > LOG_BYTES:
        log.rename(log.with_name(log.name + ".1"))
    while True:
        port, size = _free_port(), _size(log)
        process = _launch_server(cluster, log, port)
        stack.push_async_callback(_stop, process)
        if url := await _wait_for_url(process, cluster.path, port, end):
            return url
        output = _tail(log, size)
        if time.monotonic() > end or not any(text in output for text in TRANSIENT_TEXTS):
            raise EmbeddedError(
                f"PostgreSQL did not start in {cluster.path}: correct the error in its log, move "
                f"the directory away to start empty, {INSTEAD}. The end of {log.name}:\n{output}"
            )
        await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _launch_server(cluster: Cluster, log: Path, port: int) -> subprocess.Popen[bytes]:
    settings = [f"--{name}={value}" for name, value in {**SETTINGS, "port": port}.items()]
    command = [cluster.programs.bin / "postgres", *settings, "-D", cluster.path]
    with open(open_private(log, os.O_WRONLY | os.O_APPEND, cluster.account), "ab") as output:
        return launch(command, cluster.account, stdout=output, stderr=output)


async def _wait_for_url(
    process: subprocess.Popen[bytes], cluster: Path, port: int, end: float
) -> str | None:
    """Return the URL once the database exists, or None if the process or the time ended.

    `end` is a monotonic time.
    """
    password = (cluster / "superuser_password").read_text()
    server = f"postgresql://postgres:{password}@127.0.0.1:{port}/%s?sslmode=disable"
    while process.poll() is None and time.monotonic() < end:
        try:
            async with connect_to(server % "postgres", cluster) as connection:
                await _create_database(connection)
                return server % DATABASE
        except asyncpg.InvalidAuthorizationSpecificationError:
            # Another server has the port, or this one has another password.
            await wait_until(partial(_is_over, process), 2)
            return None
        except NO_ANSWER:
            await asyncio.sleep(0.02)  # The server starts or recovers.
    return None


@asynccontextmanager
async def connect_to(url: str, cluster: Path) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection to the server of this directory.

    Raises ConnectionRefusedError if the port belongs to another server.
    """
    connection = await asyncpg.connect(url, timeout=5, command_timeout=60)
    try:
        if await connection.fetchval("select current_setting('data_directory')") != str(cluster):
            raise ConnectionRefusedError("another server has the port")
        yield connection
    finally:
        await connection.close(timeout=5)


async def _create_database(connection: asyncpg.Connection) -> None:
    if not await connection.fetchval("select true from pg_database where datname = $1", DATABASE):
        await connection.execute(f"create database {DATABASE}")


async def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        for stop, seconds in STOPS:
            process.send_signal(stop)
            if await wait_until(partial(_is_over, process), seconds):
                return
    except BaseException:  # Cancelled: stop at once, and recover at the next start.
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=10)
        raise


async def end_orphan(cluster: Path) -> None:
    """Stop a server of this directory that outlived its owner. Raises EmbeddedError."""
    pid = _read_pid(cluster)
    if pid is None:
        return
    for stop, seconds in STOPS:
        if _serves(pid, cluster):
            with suppress(ProcessLookupError):
                os.kill(pid, stop)
            await wait_until(lambda: not _serves(pid, cluster), seconds)
    if _serves(pid, cluster):
        raise EmbeddedError(
            f"An earlier PostgreSQL, process {pid}, still runs in {cluster} and does not end: "
            f"end it and try again, {INSTEAD}."
        )
    if _command(pid) and not _is_postgres(_command(pid)):
        # PostgreSQL takes any process with this id for a server. After the restart of a container
        # it is a different program.
        (cluster / "postmaster.pid").unlink(missing_ok=True)


def _read_pid(cluster: Path) -> int | None:
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n")[0])
    except (FileNotFoundError, ValueError):
        return None


def _serves(pid: int, cluster: Path) -> bool:
    return _is_postgres(_command(pid)) and f" -D {cluster} " in _command(pid)


def _is_postgres(command: str) -> bool:
    return re.search(r"(^|/)postgres ", command) is not None


def _command(pid: int) -> str:
    """Return the command line of a process and a space; "" if there is no process.

    A zombie has no command line, so the result is a space.
    """
    try:
        if Path("/proc/self").exists():
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            return line.decode(errors="replace") or " "
        shown = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, timeout=5
        )
        return shown.stdout.replace("\n", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def change_owner(path: Path, account: Account | None) -> None:
    """Give a file to an account, if there is one."""
    if account:
        os.lchown(path, account.uid, account.gid)


def open_private(path: Path, flags: int, account: Account | None) -> int:
    """Return a descriptor of a file, created for that account alone. Raises OSError.

    Links are not followed, because root would give the target of a link to the account.
    """
    file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if account:
        os.fchown(file, account.uid, account.gid)
    return file


def write_private(path: Path, text: str, account: Account | None) -> None:
    """Replace a file atomically, readable for that account alone."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(open_private(new, os.O_WRONLY | os.O_EXCL, account), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _sync(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_over(process: subprocess.Popen[Any]) -> bool:
    """Return whether a child process has ended."""
    return process.poll() is not None


async def wait_until(condition: Callable[[], _Result], seconds: float) -> _Result:
    """Wait until `condition` returns a true value, and return its last value."""
    end = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return result


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _tail(log: Path, start: int = 0) -> str:
    with open(log, "rb") as file:
        file.seek(max(start, _size(log) - 3000))
        return file.read().decode(errors="replace").strip()
