"""Processes of the launcher: each has a fixed port and is killed, paused and started again."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from .launcher import read_peak

ROOT = Path(__file__).resolve().parents[2]
GONE = {"", "Z", "X"}
START_SECONDS = 60
POLL_SECONDS = 0.02

Plan = dict[str, Any]


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of run.py with its environment; `name` names its log."""

    name: str
    argv: list[str]
    env: dict[str, str]


class Launcher:
    """The process that starts the others, which end with it. `marks` is the file of failpoints."""

    def __init__(self, home: Path) -> None:
        self.marks = home / "marks"
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> "Launcher":
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        self._process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "chaos.launcher"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        process = self._process
        assert process and process.stdin
        process.stdin.close()
        with suppress(ProcessLookupError):
            await process.wait()

    async def start(self, command: Command, plan: Plan | None = None) -> int:
        """Start a command and return its process id. Its output goes to its log."""
        order = {
            "argv": command.argv,
            "env": command.env,
            "plan": plan,
            "log": str(self._log_path(command.name)),
            "marks": str(self.marks),
        }
        process = self._process
        assert process and process.stdin and process.stdout
        async with self._lock:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            line = await process.stdout.readline()
        return int(line)

    def read_log(self, name: str) -> str:
        """Return the output of all processes of a name."""
        return self._log_path(name).read_text(errors="replace")

    def _log_path(self, name: str) -> Path:
        return self._home / f"{name}.log"


class Process:
    """A process on a fixed port. `ready` is the path that answers once it has started.

    A process without `ready` is not a server.
    """

    def __init__(
        self, launcher: Launcher, command: Command, port: int = 0, ready: str | None = None
    ) -> None:
        self.name, self.port = command.name, port
        self.base = f"http://127.0.0.1:{port}"
        self.pid: int | None = None
        self._launcher, self._command, self._ready = launcher, command, ready

    async def start(self, plan: Plan | None = None) -> bool:
        """Start the process and wait until it answers.

        Return False if it ended before that, by its plan or because it cannot start now.
        """
        self.pid = await self._launcher.start(self._command, plan)
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while not self.gone:
                if self.stopped or self._ready is None or await self._is_ready(session):
                    return True
                await asyncio.sleep(POLL_SECONDS)
        return False

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        address = f"{self.base}{self._ready}"
        try:
            async with session.get(address, timeout=aiohttp.ClientTimeout(total=1)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    @property
    def state(self) -> str:
        """Return the kernel's one-letter state, or an empty string after the end."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    @property
    def gone(self) -> bool:
        return self.pid is None or self.state in GONE

    @property
    def stopped(self) -> bool:
        return self.state == "T"

    def peak(self) -> int:
        """Return the peak resident memory in kB."""
        return read_peak(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process has been started."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self.signal(signal.SIGKILL)
        while not self.gone:
            await asyncio.sleep(POLL_SECONDS)

    async def pause(self, seconds: float) -> None:
        """Stop the process for some seconds."""
        self.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.signal(signal.SIGCONT)
