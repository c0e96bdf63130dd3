"""The embedded PostgreSQL: a server under a data directory that processes of the service share.

    cluster/         PostgreSQL's data directory, including superuser_password
    making-*/        an unfinished cluster; the next start removes leftovers of an interrupted one
    users.lock       shared lock of the processes that use the server
    change.lock      exclusive lock of the process that starts or stops the server
    server.log       server.log.1 is the previous one

The first process starts the server and the last one stops it, by pg_ctl. The kernel releases the
locks of a process that ends, by any cause. A server without a user is replaced by the next start.
A forked copy of a process keeps its locks too: start workers by exec.
"""

import asyncio
import fcntl
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from service.embedded_postgres.binaries import (
    INSTEAD,
    Account,
    EmbeddedError,
    Programs,
    as_account,
    choose_account,
    find_programs,
    restrict_account,
    run_program,
)

DATABASE = "einvoice"
CHANGE_SECONDS = 60  # How long another process may take to start or stop the server.
START_SECONDS = 120  # Recovery on a slow disk takes long.
#: A failed start is repeated for this long: the port was taken meanwhile, or processes of a killed
#: server are still ending.
RETRY_SECONDS = 5
#: The steps of a stop: after an immediate one, the next start recovers.
STOPS = (("fast", 30), ("immediate", 10))
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


@dataclass(frozen=True)
class Cluster:
    """A data directory, and the programs and the account that run it."""

    path: Path
    programs: Programs
    account: Account | None

    def run(self, program: str, *arguments: str | Path, text: str = "") -> tuple[bool, str]:
        """Run a program with an input, and return whether it succeeded, and its output."""
        command = as_account(self.account, [self.programs.bin / program, *arguments])
        done = run_program(command, text, START_SECONDS + 10)
        return done.returncode == 0, done.stdout[-3000:].strip()

    def control(self, action: str, seconds: int, *options: str | Path) -> bool:
        """Run pg_ctl, which waits for this long, and return whether it succeeded."""
        return self.run("pg_ctl", action, "-D", self.path, "-t", str(seconds), *options)[0]


@asynccontextmanager
async def postgres(data_dir: Path | str) -> AsyncIterator[str]:
    """Yield the superuser's URL of database `einvoice`, on a server that is started or shared.

    The last process that uses the server stops it. Raises EmbeddedError.
    """
    server = _use_server(Path(data_dir).resolve())
    run = asyncio.get_running_loop().run_in_executor
    with ThreadPoolExecutor(1) as thread:
        try:
            yield await run(thread, server.__enter__)
        finally:  # After a cancelled entry, in the same thread.
            await run(thread, server.__exit__, None, None, None)


@contextmanager
def _use_server(home: Path) -> Iterator[str]:
    try:
        account = choose_account(home)
        if not home.exists():
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            change_owner(home, account)
        with _open_private(home / "users.lock", account) as users:
            with _exclude_changes(home):
                cluster = _find_cluster(home)
                if _lock_alone(users) or not _is_running(cluster):
                    _replace_server(cluster)
                fcntl.flock(users, fcntl.LOCK_SH)
            yield _read_url(cluster.path)
            with _exclude_changes(home):
                if _lock_alone(users):
                    _stop_server(cluster)
                fcntl.flock(users, fcntl.LOCK_UN)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot use {home} ({error}): start as an ordinary user "
            f"who owns it, free disk space, {INSTEAD}."
        ) from error


@contextmanager
def _exclude_changes(home: Path) -> Iterator[None]:
    """Exclude other processes that start or stop the server. Raises EmbeddedError."""
    end = time.monotonic() + CHANGE_SECONDS
    with _open_private(home / "change.lock", choose_account(home)) as lock:
        while not _lock_alone(lock):
            if time.monotonic() > end:
                raise EmbeddedError(
                    f"Another process has been starting or stopping the PostgreSQL in {home} for "
                    f"{CHANGE_SECONDS} seconds: end it and try again, {INSTEAD}."
                )
            time.sleep(0.05)
        try:
            yield
        finally:  # Closing alone would leave the lock with a forked copy.
            fcntl.flock(lock, fcntl.LOCK_UN)


def _lock_alone(file: BinaryIO) -> bool:
    """Take an exclusive lock if no other process has the lock, and return whether it was taken."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _find_cluster(home: Path) -> Cluster:
    """Return the cluster, which is created if there is none. Raises EmbeddedError."""
    path = home / "cluster"
    programs = find_programs(_read_major(path) if path.exists() else None)
    cluster = Cluster(path, programs, restrict_account(choose_account(path), programs, home))
    if not path.exists():
        make_cluster(cluster, f"create database {DATABASE}")
    for left in home.glob("making-*"):
        shutil.rmtree(left, ignore_errors=True)
    return cluster


def _read_major(path: Path) -> int:
    """Return the major version that created the data. Raises EmbeddedError if it cannot be run."""
    owner, user = path.stat().st_uid, os.geteuid()
    if owner == 0 or user not in (0, owner):
        raise EmbeddedError(
            f"{path} belongs to user {owner}, and PostgreSQL cannot run as that user now: "
            f"start as that user, who must not be root, change the owner, {INSTEAD}."
        )
    try:
        (path / "superuser_password").stat()
        return int((path / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError):
        raise EmbeddedError(
            f"{path} is not a PostgreSQL data directory any more: restore a copy of it, "
            f"move it away to start empty, {INSTEAD}."
        ) from None


def make_cluster(cluster: Cluster, statement: str = "") -> None:
    """Create a data directory, and run a statement in it.

    It is created elsewhere and renamed, so that an existing one is complete.
    """
    making = Path(tempfile.mkdtemp(prefix="making-", dir=cluster.path.parent))
    try:
        change_owner(making, cluster.account)
        new, password = making / "cluster", making / "superuser_password"
        with _open_private(password, cluster.account) as file:
            file.write(secrets.token_urlsafe(24).encode())
        options = ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8"]
        options += ["--data-checksums", "--no-sync", *_locale(cluster.programs.major)]
        _create(cluster, "initdb", f"--pwfile={password}", *options, "-D", new)
        single = ["--single", "-c", "exit_on_error=on", "-D", new, "postgres"]
        _create(cluster, "postgres", *single, text=f"{statement}\n")
        password.rename(new / password.name)
        _create(cluster, "initdb", "--sync-only", "-D", new)
        new.rename(cluster.path)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _locale(major: int) -> list[str]:
    """Return the options of a locale. The builtin C.UTF-8 of 17 is the same on every system."""
    if major >= 17:
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return ["--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]


def _create(cluster: Cluster, program: str, *arguments: str | Path, text: str = "") -> None:
    """Run a step of the creation. Raises EmbeddedError."""
    succeeded, output = cluster.run(program, *arguments, text=text)
    if not succeeded:
        raise EmbeddedError(
            f"PostgreSQL could not create its data directory in {cluster.path.parent}: check that "
            f"there is disk space and that the user has a name, {INSTEAD}. The output of "
            f"{program}:\n{output}"
        )


def _replace_server(cluster: Cluster) -> None:
    """Stop a server that a killed process left, and start one. Raises EmbeddedError."""
    _stop_server(cluster)
    log = cluster.path.with_name("server.log")
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.rename(log.with_name(log.name + ".1"))
    _open_private(log, cluster.account).close()  # The directory may belong to root.
    end = time.monotonic() + RETRY_SECONDS
    while not cluster.control("start", START_SECONDS, "-l", log, "-o", _format_settings()):
        if time.monotonic() > end:
            _stop_server(cluster)
            raise EmbeddedError(
                f"PostgreSQL did not start in {cluster.path}: correct the error in its log, move "
                f"the directory away to start empty, {INSTEAD}. The end of {log.name}:\n"
                f"{log.read_text(errors='replace')[-3000:].strip()}"
            )
        time.sleep(0.5)


def _format_settings() -> str:
    """Return the options of a server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        settings = {**SETTINGS, "port": probe.getsockname()[1]}
    return shlex.join(f"--{name}={value}" for name, value in settings.items())


def _stop_server(cluster: Cluster) -> None:
    """Stop the server, if it runs. Raises EmbeddedError."""
    for mode, seconds in STOPS:
        end = time.monotonic() + seconds
        while _is_running(cluster) and time.monotonic() < end:
            cluster.control("stop", 1, "-m", mode)
    if _is_running(cluster):
        raise EmbeddedError(
            f"The PostgreSQL in {cluster.path} does not end: end the process that postmaster.pid "
            f"names and try again, {INSTEAD}."
        )


def _is_running(cluster: Cluster) -> bool:
    """Return whether the server runs.

    PostgreSQL takes any process with the id in its file for a server. After the restart of a
    container it is a different program; then the file is removed. A zombie has no command line.
    """
    file = cluster.path / "postmaster.pid"
    with suppress(FileNotFoundError, ProcessLookupError):
        pid = file.read_text().partition("\n")[0]
        program = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
        if Path(program).name != "postgres":
            file.unlink()
    return cluster.control("status", 0)


def _read_url(path: Path) -> str:
    password = (path / "superuser_password").read_text()
    port = (path / "postmaster.pid").read_text().splitlines()[3]
    return f"postgresql://postgres:{password}@127.0.0.1:{port}/{DATABASE}?sslmode=disable"


def change_owner(path: Path, account: Account | None) -> None:
    if account:
        os.lchown(path, account.uid, account.gid)


def _open_private(path: Path, account: Account | None) -> BinaryIO:
    """Return a file for writing, created for that account alone. Raises OSError.

    Links are not followed, because root would give the target of a link to the account.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if account:
        os.fchown(file, account.uid, account.gid)
    return open(file, "wb")
