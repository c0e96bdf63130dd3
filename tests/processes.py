"""The service as a separate process that a test can kill."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import aiohttp
from conftest import until

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """`python run.py` with environment variables, which can be restarted on the same port."""

    def __init__(self, environment: Mapping[str, str], log: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self._environment = {
            **os.environ,
            **environment,
            "PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
        }
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """Return the process that was started last."""
        assert self._process is not None
        return self._process

    async def start(
        self,
        dies_at: str | None = None,
        *,
        stops_at: str | None = None,
        vanishes_at: str | None = None,
    ) -> None:
        """Start the process and wait until it is ready.

        With the name of a failpoint it dies, is paused, or vanishes from the network when it first
        reaches that failpoint.
        """
        ends = {"die": dies_at, "stop": stops_at, "vanish": vanishes_at}
        program = next(
            (["tests/failing.py", how, name] for how, name in ends.items() if name), ["run.py"]
        )
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *program],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        await until(self._ready, seconds=60)

    async def kill(self) -> None:
        """End the process as a power loss would."""
        self.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)

    async def paused(self) -> None:
        """Wait until the process is paused at its failpoint."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        await until(
            lambda: asyncio.to_thread(
                lambda: stat.read_text().rpartition(")")[2].split()[0] == "T"
            ),
            seconds=60,
        )

    async def died(self) -> None:
        """Wait until the process was killed."""
        assert await asyncio.to_thread(self.process.wait, 20) == -signal.SIGKILL

    async def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, 40)

    def output(self) -> str:
        """Return the log of all processes so far."""
        return Path(self._log).read_text()

    async def _ready(self) -> bool:
        assert self.process.poll() is None, self.output()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.base}/readyz") as response,
            ):
                return response.status == 200
        except aiohttp.ClientError:
            return False
