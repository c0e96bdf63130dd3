"""Processes that the launcher starts: one port each, killed, paused and started again."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp

from .launcher import peak

ROOT = Path(__file__).resolve().parents[2]
GONE = {"", "Z", "X"}
START_SECONDS = 60
POLL_SECONDS = 0.02


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Launcher:
    """The process that starts the others, which end with it. Their failpoints mark the file `marks`."""

    def __init__(self, home):
        self.marks = home / "marks"
        self._home = home
        self._process = None
        self._turn = asyncio.Lock()

    async def __aenter__(self):
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        self._process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "chaos.launcher"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *raised):
        self._process.stdin.close()
        with suppress(ProcessLookupError):
            await self._process.wait()

    async def start(self, name, argv, env, plan=None):
        """The process id of a command of run.py, whose output goes to the log of that name."""
        files = {"log": str(self._home / f"{name}.log"), "marks": str(self.marks)}
        order = {"argv": argv, "env": env, "plan": plan, **files}
        async with self._turn:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            line = await self._process.stdout.readline()
        return int(line)

    def log(self, name):
        return (self._home / f"{name}.log").read_text(errors="replace")


class Process:
    """A server on a port of its own: `env` is what it is started with each time, `ready` the path that then answers.

    One without `ready` is no server.
    """

    def __init__(self, launcher, name, argv, env, port=0, ready=None):
        self.name, self.port = name, port
        self.base = f"http://127.0.0.1:{port}"
        self.pid = None
        self._launcher, self._argv, self._env, self._ready = launcher, argv, env, ready

    async def start(self, plan=None):
        """True once it answers; False when it ended before that, by its plan or because it cannot start now."""
        self.pid = await self._launcher.start(self.name, self._argv, self._env, plan)
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while not self.gone:
                if self.stopped or self._ready is None or await self._answers(session):
                    return True
                await asyncio.sleep(POLL_SECONDS)
        return False

    async def _answers(self, session):
        try:
            async with session.get(
                self.base + self._ready, timeout=aiohttp.ClientTimeout(total=1)
            ) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    @property
    def state(self):
        """One letter, as the kernel has it; '' for a process that is gone."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    @property
    def gone(self):
        return self.pid is None or self.state in GONE

    @property
    def stopped(self):
        return self.state == "T"

    def peak(self):
        return peak(self.pid)

    def signal(self, number):
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def kill(self):
        self.signal(signal.SIGKILL)
        await self.ended()

    async def pause(self, seconds):
        self.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.signal(signal.SIGCONT)

    async def ended(self):
        while not self.gone:
            await asyncio.sleep(POLL_SECONDS)
