"""The embedded PostgreSQL: a real server under a data directory, for as long as a process of ours needs it.

    cluster/         PostgreSQL's data directory, with superuser_password among its files
    making-*/        a cluster not finished; what an interrupted start left is removed by the next
    owner.lock       held exclusively by the process that started the server, until it has stopped it
    users.lock       held, shared, by the processes that joined
    url              how to join; there only while that is welcome
    server.log       server.log.1: the one before

Only the two locks say who runs the server: the kernel frees them with their process, however that ends. A stopping
owner first takes `url` away, then waits a while for users.lock, so that a short command that happened to be first
does not cut off the second. A forked copy of a process keeps its locks too: start workers by exec.
"""

import asyncio
import fcntl
import os
import shutil
import time
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from service.embedded_postgres.binaries import (
    INSTEAD,
    EmbeddedError,
    account_for,
    find_programs,
    reaching,
)
from service.embedded_postgres.server import (
    NO_ANSWER,
    connected,
    end_orphan,
    give,
    major_of,
    make_cluster,
    opened,
    started,
    until,
    write,
)

JOIN_SECONDS = 60  # for another process to finish starting or stopping
USERS_SECONDS = 10  # for those who joined, before the server stops all the same


@asynccontextmanager
async def postgres(data_dir):
    """The URL of the superuser on database `einvoice`, of a server started here or by another process of ours.

    Whoever started it stops it. Raises EmbeddedError. Call it in the main thread: see `launch`.
    """
    home = Path(data_dir).resolve()
    async with AsyncExitStack() as stack:
        with _explained(home):
            url = await _enter(home, stack)
        yield url


@contextmanager
def _explained(home):
    try:
        yield
    except OSError as error:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot use {home} ({error}): start as an ordinary user "
            f"to whom it belongs, see that the disk has room, {INSTEAD}."
        ) from error


async def _enter(home, stack):
    _make_directory(home)
    end = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < end:
        if _locked(home / "owner.lock", fcntl.LOCK_EX, stack):
            return await _own(home, stack)
        if url := await _join(home, stack):
            return url
        await asyncio.sleep(0.05)
    raise EmbeddedError(
        f"Another process has been starting or stopping the PostgreSQL in {home} for {JOIN_SECONDS} "
        f"seconds: end it and try again, {INSTEAD}."
    )


def _make_directory(home):
    """As root, the directories above it stay with whom the nearest one belongs to: root may work in a user's clone."""
    places, account = (home, *home.parents), account_for(home)
    missing, nearest = (
        [place for place in places if not place.exists()],
        next(p for p in places if p.exists()).stat(),
    )
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account and missing:
        for place in missing:
            os.chown(place, nearest.st_uid, nearest.st_gid)
        give(home, account)


def _locked(path, kind, stack):
    """Whether the lock was free; it is then held until the stack ends."""
    file = opened(path, os.O_RDWR, account_for(path.parent))
    with ExitStack() as held:
        held.callback(os.close, file)
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Closing alone would leave it with a forked copy
        held.callback(fcntl.flock, file, fcntl.LOCK_UN)
        stack.push(held.pop_all())
        return True


async def _join(home, stack):
    """The URL, when the server takes a connection now, else None. The owner waits for us until the stack ends."""
    with ExitStack() as joined:
        if not _locked(home / "users.lock", fcntl.LOCK_SH, joined):
            return None
        try:
            url = (home / "url").read_text()
            async with connected(url, home / "cluster"):
                pass
        except PermissionError:
            raise
        except NO_ANSWER:
            return None
        stack.push(joined.pop_all())
        return url


def _clear(home):
    """Removes what an interrupted start left."""
    for left in home.glob("making-*"):
        shutil.rmtree(left, ignore_errors=True)


async def _own(home, stack):
    cluster = home / "cluster"
    (home / "url").unlink(missing_ok=True)
    _clear(home)
    programs = find_programs(major_of(cluster) if cluster.exists() else None)
    account = reaching(account_for(cluster), programs, home)
    if cluster.exists():
        await end_orphan(cluster)
    else:
        await make_cluster(cluster, programs, account)
    url = await started(cluster, programs, account, home / "server.log", stack)
    _clear(home)  # a program that outlived its killed process may have written on
    stack.push_async_callback(_see_users_off, home)
    write(home / "url", url, account)
    return url


async def _see_users_off(home):
    with suppress(OSError), ExitStack() as held:
        (home / "url").unlink(missing_ok=True)
        await until(lambda: _locked(home / "users.lock", fcntl.LOCK_EX, held), USERS_SECONDS)
