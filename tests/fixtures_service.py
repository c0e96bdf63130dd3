"""Fixtures for several test modules that run commands of the service."""

import asyncio
import os
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

RUN = Path(__file__).resolve().parent.parent / "run.py"


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code of a command and its output."""

    code: int | None
    out: str
    err: str


class RunCommand(Protocol):
    """The type of the fixture command."""

    def __call__(self, *arguments: object, **variables: str) -> Awaitable[Result]:
        """Run a command with environment variables."""
        ...


@pytest.fixture
def command(environment: dict[str, str]) -> RunCommand:
    """Return a function that runs run.py on the test's database: `await command("migrate")`."""

    async def run(*arguments: object, **variables: str) -> Result:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *[str(RUN), *map(str, arguments)],
            env={"PATH": os.environ["PATH"], **environment, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Result(process.returncode, out.decode(), err.decode())

    return run
