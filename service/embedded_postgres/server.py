"""One PostgreSQL server: making its data directory, starting it, and stopping it.

The caller holds the lock that says nobody else does any of this to the same directory.
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
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import asyncpg

from service.embedded_postgres.binaries import INSTEAD, EmbeddedError, launch

DATABASE = "einvoice"
INITDB_SECONDS, START_SECONDS = 120, 120  # recovery on a slow disk takes its time
#: How a server is stopped: fast shutdown, then immediate (the next start recovers), then by force.
STOPS = ((signal.SIGINT, 30), (signal.SIGQUIT, 5), (signal.SIGKILL, 5))
LOG_BYTES = 10_000_000
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # its path may have 107 bytes, and a checkout may be deeper
    "max_connections": 200,
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "jit": "off",  # compiling takes longer than our statements
}
#: What the log says when a next attempt can succeed: the port was taken meanwhile, or the last
#: processes of a
#: killed server are still ending.
PASSING = ("Address already in use", "is still in use")
# A TimeoutError is an OSError
NO_ANSWER = (OSError, asyncpg.PostgresError, asyncpg.InternalClientError)


# The data directory


def major_of(cluster):
    """The major version that made the data. Raises EmbeddedError when it is not a cluster we can run."""
    owner, user = cluster.stat().st_uid, os.geteuid()
    if owner == 0 or user not in (0, owner):
        raise EmbeddedError(
            f"{cluster} belongs to user {owner}, who is not the one to run PostgreSQL now: "
            f"start as that user, who must not be root, change the owner, {INSTEAD}."
        )
    try:
        (cluster / "superuser_password").stat()
        return int((cluster / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError):
        raise EmbeddedError(
            f"{cluster} is not a PostgreSQL data directory any more: put back a copy of it, "
            f"move it away to start empty, {INSTEAD}."
        ) from None


async def make_cluster(cluster, programs, account):
    """Makes it aside and moves it in when it is whole: a cluster that is there is a good one."""
    making = Path(tempfile.mkdtemp(prefix="making-", dir=cluster.parent))
    try:
        give(making, account)
        password = making / "superuser_password"
        write(password, secrets.token_urlsafe(24), account)
        await _initdb(making, programs, account)
        password.rename(making / "cluster" / password.name)
        _sync(making / "cluster")
        (making / "cluster").rename(cluster)
        _sync(cluster.parent)
    finally:
        shutil.rmtree(making, ignore_errors=True)


async def _initdb(making, programs, account):
    command = [
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
                await until(partial(_is_over, process), INITDB_SECONDS)
            finally:
                process.kill()
                process.wait()
        if process.returncode == 0:
            return
    raise EmbeddedError(
        f"PostgreSQL could not make its data directory in {making.parent}: see that the disk has room "
        f"and that the user has a name, {INSTEAD}. It said:\n{_tail(making / 'initdb.log')}"
    )


def _locales(programs):
    """The C.UTF-8 that newer servers have built in is the same on every system; older ones ask the C library."""
    if programs.major >= 17:
        return [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    return [["--locale=C.UTF-8"], ["--locale=C"]]


# Starting


async def started(cluster, programs, account, log, stack):
    """Starts the server and returns its URL. It is stopped when the stack ends. Raises EmbeddedError."""
    end = time.monotonic() + START_SECONDS
    if _size(log) > LOG_BYTES:
        log.rename(log.with_name(log.name + ".1"))
    while True:
        port, size = _free_port(), _size(log)
        process = _launch_server(cluster, programs, account, log, port)
        stack.push_async_callback(_stop, process)
        if url := await _answer(process, cluster, port, end):
            return url
        said = _tail(log, size)
        if time.monotonic() > end or not any(text in said for text in PASSING):
            raise EmbeddedError(
                f"PostgreSQL did not start in {cluster}: put right what its log says, move the "
                f"directory away to start empty, {INSTEAD}. The end of {log.name}:\n{said}"
            )
        await asyncio.sleep(0.1)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _launch_server(cluster, programs, account, log, port):
    settings = [f"--{name}={value}" for name, value in {**SETTINGS, "port": port}.items()]
    with open(opened(log, os.O_WRONLY | os.O_APPEND, account), "ab") as output:
        return launch(
            [programs.bin / "postgres", *settings, "-D", cluster],
            account,
            stdout=output,
            stderr=output,
        )


async def _answer(process, cluster, port, end):
    """The URL once a connection succeeds and the database is there; None when the process or the time ended."""
    password = (cluster / "superuser_password").read_text()
    server = f"postgresql://postgres:{password}@127.0.0.1:{port}/%s?sslmode=disable"
    while process.poll() is None and time.monotonic() < end:
        try:
            async with connected(server % "postgres", cluster) as connection:
                await _create_database(connection)
                return server % DATABASE
        except (
            asyncpg.InvalidAuthorizationSpecificationError
        ):  # ours with another password, or not ours
            await until(lambda: process.poll() is not None, 2)
            return None
        except NO_ANSWER:
            await asyncio.sleep(0.02)  # starting, or recovering
    return None


@asynccontextmanager
async def connected(url, cluster):
    """A connection to the server of this very directory: the port may have gone to another one."""
    connection = await asyncpg.connect(url, timeout=5, command_timeout=60)
    try:
        if await connection.fetchval("select current_setting('data_directory')") != str(cluster):
            raise ConnectionRefusedError("another server has the port")
        yield connection
    finally:
        await connection.close(timeout=5)


async def _create_database(connection):
    if not await connection.fetchval("select true from pg_database where datname = $1", DATABASE):
        await connection.execute(f"create database {DATABASE}")


# Stopping


async def _stop(process):
    try:
        for stop, seconds in STOPS:
            process.send_signal(stop)
            if await until(lambda: process.poll() is not None, seconds):
                return
    except BaseException:  # we are told to hurry
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=10)
        raise


async def end_orphan(cluster):
    """Stops a server of this directory that outlived its owner. Raises EmbeddedError when it does not end."""
    pid = _postmaster(cluster)
    for stop, seconds in STOPS:
        if _serves(pid, cluster):
            with suppress(ProcessLookupError):
                os.kill(pid, stop)
            await until(lambda: not _serves(pid, cluster), seconds)
    if _serves(pid, cluster):
        raise EmbeddedError(
            f"An earlier PostgreSQL, process {pid}, still runs in {cluster} and does not end: "
            f"end it and try again, {INSTEAD}."
        )
    if _command(pid) and not _is_postgres(_command(pid)):
        # PostgreSQL takes any process of that number for a server; after a container's restart it
        # is a stranger.
        (cluster / "postmaster.pid").unlink(missing_ok=True)


def _postmaster(cluster):
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n")[0])
    except (FileNotFoundError, ValueError):
        return None


def _serves(pid, cluster):
    return _is_postgres(_command(pid)) and f" -D {cluster} " in _command(pid)


def _is_postgres(command):
    return re.search(r"(^|/)postgres ", command)


def _command(pid):
    """The command line of a process and a space, which is all that one has who is dead and not buried; else ''."""
    if pid is None:
        return ""
    try:
        if Path("/proc/self").exists():
            return (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
                or " "
            )
        shown = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, timeout=5
        )
        return shown.stdout.replace("\n", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


# Small things


def give(path, account):
    if account:
        os.lchown(path, account.uid, account.gid)


def opened(path, flags, account):
    """A descriptor of the file, made if need be for that account alone. Raises OSError.

    No link is followed: as root we would give away what somebody let it point to.
    """
    file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if account:
        os.fchown(file, account.uid, account.gid)
    return file


def write(path, text, account):
    """Replaces the file at once, so that nobody reads half of it."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(opened(new, os.O_WRONLY | os.O_EXCL, account), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _sync(directory):
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_over(process):
    """Return whether a child process has ended."""
    return process.poll() is not None


async def until(condition, seconds):
    """What `condition` gives as soon as that is true, or at last when the time is over."""
    end = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return result


def _size(log):
    return log.stat().st_size if log.exists() else 0


def _tail(log, start=0):
    with open(log, "rb") as file:
        file.seek(max(start, _size(log) - 3000))
        return file.read().decode(errors="replace").strip()
