"""Programs that a benchmark runs: find them, and run them with a limit of time."""

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: The Debian packages of programs that are not part of the project.
PACKAGES = {
    "wrk": "wrk",
    "node": "nodejs",
    "npm": "npm",
    "pgbench": "postgresql-15, or another version",
    "psql": "postgresql-client",
}


class ProgramError(Exception):
    """A program is missing or failed; the message is for the user."""


def find_program(name: str) -> str:
    """Return the path of a program in PATH or in an installation of PostgreSQL on Debian.

    Raises ProgramError.
    """
    if path := shutil.which(name):
        return path
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    if places:
        return str(places[0])
    raise ProgramError(f"{name} was not found. Debian package: {PACKAGES[name]}.")


def find_missing(names: Iterable[str]) -> list[str]:
    """Return a message for each program that is missing."""
    messages: list[str] = []
    for name in names:
        try:
            find_program(name)
        except ProgramError as error:
            messages.append(str(error))
    return messages


async def run_program(
    command: Sequence[str],
    seconds: float,
    variables: Mapping[str, str] | None = None,
    output: int = asyncio.subprocess.PIPE,
) -> str:
    """Run a program and return its output. Raises ProgramError if it fails or takes too long.

    It is killed if this task is cancelled.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(variables or {})},
    )
    try:
        async with asyncio.timeout(seconds):
            out, errors = await process.communicate()
    except TimeoutError:
        raise ProgramError(f"{command[0]} took more than {seconds:g} seconds.") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        text = errors.decode(errors="replace")[-2000:]
        raise ProgramError(f"{command[0]} ended with code {process.returncode}:\n{text}")
    return (out or b"").decode(errors="replace")
