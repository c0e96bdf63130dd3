"""The peers with which compare.py compares: install their dependencies, and start them."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Self

from benchmark import processes
from programs import run_program

PEERS = Path(__file__).resolve().parent / "peers"
FASTAPI, FASTIFY = PEERS / "fastapi", PEERS / "fastify"
INSTALL_SECONDS = 300
NODE_PROGRAMS = ("node", "npm")


class Peer(processes.ForkedProcess):
    """One process of a peer on a free port. As a context manager it is started and stopped."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        port = processes.free_port()
        super().__init__({**environment, "PORT": str(port)}, log, port, "/readyz")
        self._command = [part.replace("{port}", str(port)) for part in command]

    async def __aenter__(self) -> Self:
        if not await self.run(partial(os.execvp, self._command[0], self._command)):
            raise RuntimeError(f"A peer did not start:\n{self.output()[-2000:]}")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


def create_fastapi(url: str, home: Path) -> Peer:
    """Return the FastAPI peer: uvicorn with uvloop and httptools."""
    command = [
        *(str(FASTAPI / ".venv/bin/python"), "-m", "uvicorn", "invoicing.app:app"),
        *("--app-dir", str(FASTAPI), "--host", "127.0.0.1", "--port", "{port}"),
        *("--loop", "uvloop", "--http", "httptools"),
        *("--no-access-log", "--log-level", "warning"),
    ]
    return Peer(command, {"DATABASE_URL": url}, home / "fastapi.log")


def create_fastify(url: str, home: Path) -> Peer:
    """Return the Fastify peer."""
    command = ["node", str(FASTIFY / "app.js")]
    environment = {"DATABASE_URL": url, "NODE_ENV": "production"}
    return Peer(command, environment, home / "fastify.log")


async def install_fastapi() -> None:
    """Install the dependencies of the FastAPI peer into its folder, once."""
    folder, requirements = FASTAPI / ".venv", FASTAPI / "requirements.txt"
    if _is_installed(folder, requirements):
        return
    print(f"Installing the FastAPI peer into {folder} …", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    await run_program([sys.executable, "-m", "venv", str(folder)], INSTALL_SECONDS)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    await run_program([*pip, "--quiet", "-r", str(requirements)], INSTALL_SECONDS)
    _mark_installed(folder, requirements)


async def install_fastify() -> None:
    """Install the dependencies of the Fastify peer into its folder, once."""
    folder, package = FASTIFY / "node_modules", FASTIFY / "package.json"
    if _is_installed(folder, package):
        return
    print(f"Installing the Fastify peer into {folder} …", flush=True)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    npm = ["npm", "install", "--prefix", str(FASTIFY)]
    await run_program([*npm, "--no-package-lock", "--no-audit", "--no-fund"], INSTALL_SECONDS)
    _mark_installed(folder, package)


def _is_installed(folder: Path, wanted: Path) -> bool:
    """Return whether the dependencies are those of the current file."""
    mark = folder / "installed"
    return mark.exists() and mark.read_text() == wanted.read_text()


def _mark_installed(folder: Path, wanted: Path) -> None:
    (folder / "installed").write_text(wanted.read_text())
