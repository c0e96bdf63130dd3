"""The embedded PostgreSQL: a server under a data directory that processes of the service share.

    cluster/         PostgreSQL's data directory, including superuser_password
    making-*/        an unfinished cluster; the next start removes leftovers of an interrupted one
    owner.lock       exclusive lock of the process that started the server, until it has stopped it
    users.lock       shared lock of the processes that joined
    url              address for joining; exists only while processes may join
    server.log       server.log.1 is the previous one

Only the two locks decide which process runs the server: the kernel releases them when the process
ends, by any cause. An owner that stops removes `url` first and then waits for users.lock, so that a
short command that was first does not cut off the second one. A forked copy of a process keeps its
locks too: start workers by exec.
"""

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from service.embedded_postgres.binaries import (
    INSTEAD,
    EmbeddedError,
    choose_account,
    find_programs,
    restrict_account,
)
from service.embedded_postgres.server import (
    NO_ANSWER,
    Cluster,
    change_owner,
    connect_to,
    end_orphan,
    make_cluster,
    open_private,
    read_major,
    start_server,
    wait_until,
    write_private,
)

JOIN_SECONDS = 60  # How long another process may take to start or stop the server.
USERS_SECONDS = 10  # How long a stopping owner waits for processes that joined.


@asynccontextmanager
async def postgres(data_dir: Path | str) -> AsyncIterator[str]:
    """Yield the superuser's URL of database `einvoice`, on a server that is started or joined.

    The process that started the server stops it. Call this in the main thread: see `launch`.
    Raises EmbeddedError.
    """
    home = Path(data_dir).resolve()
    async with AsyncExitStack() as stack:
        with _explain_os_errors(home):
            url = await _enter(home, stack)
        yield url


@contextmanager
def _explain_os_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot use {home} ({error}): start as an ordinary user "
            f"who owns it, free disk space, {INSTEAD}."
        ) from error


async def _enter(home: Path, stack: AsyncExitStack) -> str:
    _make_directory(home)
    end = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < end:
        if _lock(home / "owner.lock", fcntl.LOCK_EX, stack):
            return await _own(home, stack)
        if url := await _join(home, stack):
            return url
        await asyncio.sleep(0.05)
    raise EmbeddedError(
        f"Another process has been starting or stopping the PostgreSQL in {home} for "
        f"{JOIN_SECONDS} seconds: end it and try again, {INSTEAD}."
    )


def _make_directory(home: Path) -> None:
    """Create the directory. New parents get the owner of the nearest existing one.

    This matters for root, who may work in a clone of another user.
    """
    places, account = (home, *home.parents), choose_account(home)
    missing, nearest = (
        [place for place in places if not place.exists()],
        next(p for p in places if p.exists()).stat(),
    )
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account and missing:
        for place in missing:
            os.chown(place, nearest.st_uid, nearest.st_gid)
        change_owner(home, account)


def _lock(path: Path, kind: int, stack: ExitStack | AsyncExitStack) -> bool:
    """Take a lock until the stack ends, and return whether it was free."""
    file = open_private(path, os.O_RDWR, choose_account(path.parent))
    with ExitStack() as held:
        held.callback(os.close, file)
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Closing alone would leave the lock with a forked copy.
        held.callback(fcntl.flock, file, fcntl.LOCK_UN)
        stack.push(held.pop_all())
        return True


async def _join(home: Path, stack: AsyncExitStack) -> str | None:
    """Return the URL if the server accepts a connection. The owner waits until the stack ends."""
    with ExitStack() as joined:
        if not _lock(home / "users.lock", fcntl.LOCK_SH, joined):
            return None
        try:
            url = (home / "url").read_text()
            async with connect_to(url, home / "cluster"):
                pass
        except PermissionError:
            raise
        except NO_ANSWER:
            return None
        stack.push(joined.pop_all())
        return url


def _remove_leftovers(home: Path) -> None:
    """Remove the leftovers of an interrupted start."""
    for left in home.glob("making-*"):
        shutil.rmtree(left, ignore_errors=True)


async def _own(home: Path, stack: AsyncExitStack) -> str:
    path = home / "cluster"
    (home / "url").unlink(missing_ok=True)
    _remove_leftovers(home)
    programs = find_programs(read_major(path) if path.exists() else None)
    account = restrict_account(choose_account(path), programs, home)
    cluster = Cluster(path, programs, account)
    if path.exists():
        await end_orphan(path)
    else:
        await make_cluster(cluster)
    url = await start_server(cluster, home / "server.log", stack)
    _remove_leftovers(home)  # A program that outlived its killed process may have written more.
    stack.push_async_callback(_wait_for_users, home)
    write_private(home / "url", url, account)
    return url


async def _wait_for_users(home: Path) -> None:
    with suppress(OSError), ExitStack() as held:
        (home / "url").unlink(missing_ok=True)
        await wait_until(lambda: _lock(home / "users.lock", fcntl.LOCK_EX, held), USERS_SECONDS)
