"""Programs that a benchmark runs: find them, and run them with a limit of time."""

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

#: The Debian packages of programs that are not part of the project.
PACKAGES = {
    "wrk": "wrk",
    "node": "nodejs",
    "npm": "npm",
    "psql": "postgresql-client",
}


class ProgramError(Exception):
    """A program is missing or failed; the message is for the user."""


def find_missing(names: Iterable[str]) -> list[str]:
    """Return a message for each program that is not in PATH."""
    return [
        f"{name} was not found. Debian package: {PACKAGES.get(name, name)}."
        for name in names
        if shutil.which(name) is None
    ]


async def run_program(
    command: Sequence[str],
    seconds: float,
    variables: Mapping[str, str] | None = None,
    output: int = asyncio.subprocess.PIPE,
) -> str:
    """Run a program and return its output.

    Raises ProgramError if it is missing, fails or takes too long. It is killed if this task is
    cancelled.
    """
    if messages := find_missing(command[:1]):
        raise ProgramError(messages[0])
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
