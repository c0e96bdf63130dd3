"""Fixtures for several test modules that run commands of the service."""

from collections.abc import Awaitable
from typing import Protocol

import pytest
from harness.processes import Finished, run_command


class RunCommand(Protocol):
    """The type of the fixture command."""

    def __call__(self, *arguments: object, **variables: str) -> Awaitable[Finished]:
        """Run a command with environment variables."""
        ...


@pytest.fixture
def command(environment: dict[str, str]) -> RunCommand:
    """Return a function that runs run.py on the test's database: `await command("migrate")`."""

    async def run(*arguments: object, **variables: str) -> Finished:
        return await run_command(arguments, {**environment, **variables})

    return run
