"""The service as a process of its own, to be killed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
from conftest import until

ROOT = Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """`python run.py` with some variables; started, killed and started again on one port."""

    def __init__(self, environment, log, port=None):
        self.port = port or free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self._environment = {
            **os.environ,
            **environment,
            "PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
        }
        self._log = log
        self.process = None

    async def start(
        self, dies_at=None, *, stops_at: str | None = None, vanishes_at: str | None = None
    ) -> None:
        """Start the process and wait until it is ready.

        With the name of a failpoint it ends, is paused, or vanishes from the network when it first passes there.
        """
        ends = {"die": dies_at, "stop": stops_at, "vanish": vanishes_at}
        program = next(
            (["tests/failing.py", how, name] for how, name in ends.items() if name), ["run.py"]
        )
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        await until(self._ready, seconds=60)

    async def kill(self):
        """As power loss would end it."""
        self.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)

    async def paused(self) -> None:
        """Wait until the process is stopped at its failpoint, however it is to end there."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        await until(
            lambda: asyncio.to_thread(
                lambda: stat.read_text().rpartition(")")[2].split()[0] == "T"
            ),
            seconds=60,
        )

    async def died(self):
        """Waits until it was killed."""
        assert await asyncio.to_thread(self.process.wait, 20) == -signal.SIGKILL

    async def stop(self):
        """The exit code after SIGTERM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, 40)

    def output(self):
        return Path(self._log).read_text()

    async def _ready(self):
        assert self.process.poll() is None, self.output()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.base}/readyz") as response,
            ):
                return response.status == 200
        except aiohttp.ClientError:
            return False
