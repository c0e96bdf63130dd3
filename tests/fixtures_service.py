"""Fixtures for several test modules that run commands of the service."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

RUN = Path(__file__).resolve().parent.parent / "run.py"


@pytest.fixture
def command(environment: dict[str, str]) -> Callable[..., Awaitable[SimpleNamespace]]:
    """Return a function that runs run.py on the test's database: `await command("migrate")`."""

    async def run(*arguments: object, **variables: str) -> SimpleNamespace:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *[str(RUN), *map(str, arguments)],
            env={"PATH": os.environ["PATH"], **environment, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return SimpleNamespace(code=process.returncode, out=out.decode(), err=err.decode())

    return run
