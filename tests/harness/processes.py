"""Processes of run.py: start them, wait until they answer, signal them, and read their state."""

import asyncio
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

import aiohttp

from tests.harness import failing, forking
from tests.harness.paths import ROOT
from tests.harness.waiting import POLL_SECONDS, patience, until, wait_until

START_SECONDS = 60
STOP_SECONDS = 40  # longer than the service may take to finish its requests
LISTENING = "0A"  # state in /proc/net/tcp
GONE = {"", "Z", "X"}  # states of a process that has ended
#: Ports below those of clients, so that no connection takes one before its server has started.
SERVER_PORTS = range(15000, 32000)
#: Ports that this process has chosen.
_chosen: set[int] = set()
ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=1)


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended: its exit code, its output and its errors."""

    code: int | None
    out: str
    err: str


async def run_command(arguments: Iterable[object], environment: Mapping[str, str]) -> Finished:
    """Run a command of run.py with these environment variables only, and wait for its end."""
    with tempfile.TemporaryDirectory() as home:
        out, err = Path(home, "out"), Path(home, "err")
        variables = {"PATH": os.environ["PATH"], "PORT": str(free_port()), **environment}
        target = partial(failing.run_command, list(map(str, arguments)))
        process = forking.start(target, variables, out, err)
        await wait_until(lambda: process.exitcode is not None, START_SECONDS)
        return Finished(process.exitcode, out.read_text(), err.read_text())


def free_port() -> int:
    """Return a TCP port that is free now and that the system gives to no client."""
    while True:
        port = secrets.choice(SERVER_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _chosen:
                _chosen.add(port)
                return port


def read_status(pid: int | None) -> dict[str, str]:
    """Return the first word of each field of /proc/<pid>/status.

    It is empty if the process is reaped, or if the system has no /proc.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {name: (text.split() or [""])[0] for name, _, text in fields}


def read_peak(pid: int | None) -> int:
    """Return the peak resident memory of a process in kB, 0 if it is unknown or has ended."""
    return int(read_status(pid).get("VmHWM", 0))


def read_listening_ports(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens. It needs /proc."""
    own = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, place, _, state, *_, inode = line.split()[:10]
            if state == LISTENING and f"socket:[{inode}]" in own:
                ports.add(int(place.rpartition(":")[2], 16))
    return ports


class Process:
    """A process that is known by its id. It can be started again on the same port.

    `ready` is the path that answers with 200 once the process has started. A process without it is
    not a server.
    """

    def __init__(self, port: int = 0, ready: str | None = None) -> None:
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.pid: int | None = None
        self._ready = ready

    @property
    def is_gone(self) -> bool:
        """Return whether the process has ended, or was never started."""
        return self.pid is None or read_status(self.pid).get("State", "") in GONE

    @property
    def is_paused(self) -> bool:
        """Return whether the process was stopped by SIGSTOP. It needs /proc."""
        return read_status(self.pid).get("State") == "T"

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.pid is not None and not self.is_gone:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """End the process as a power loss would."""
        self.send_signal(signal.SIGKILL)
        await wait_until(lambda: self.is_gone)

    async def paused(self) -> None:
        """Wait until the process is paused at its failpoint."""
        await wait_until(lambda: self.is_paused, START_SECONDS)

    async def wait_until_ready(self) -> bool:
        """Wait until the process answers or is paused. Return False if it ended before that."""
        async with patience(START_SECONDS), aiohttp.ClientSession(timeout=ANSWER_TIMEOUT) as http:
            while not self.is_gone:
                if self._ready is None or self.is_paused or await self._answers(http, self._ready):
                    return True
                await asyncio.sleep(POLL_SECONDS)
        return False

    async def _answers(self, http: aiohttp.ClientSession, path: str) -> bool:
        try:
            async with http.get(self.base + path) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


class ForkedProcess(Process):
    """A function that runs in a fork, with environment variables. Its output goes to a file."""

    def __init__(
        self, environment: Mapping[str, str], log: Path, port: int = 0, ready: str | None = None
    ) -> None:
        super().__init__(port, ready)
        self._log = log
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._process: BaseProcess | None = None

    @property
    def is_gone(self) -> bool:
        """Return whether the process has ended, or was never started."""
        return self._process is None or self._process.exitcode is not None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, the negative number of the signal, or None while it runs."""
        return self._process and self._process.exitcode

    async def run(self, target: Callable[[], None]) -> bool:
        """Start the process with a function. Return whether it became ready."""
        self._log.touch()  # It is read before the process has opened it.
        self._process = forking.start(target, self._environment, self._log, self._log)
        self.pid = self._process.pid
        try:
            return await self.wait_until_ready()
        except BaseException:
            await self.kill()
            raise

    async def died(self) -> None:
        """Wait until the process was killed."""
        assert await self.wait() == -signal.SIGKILL

    async def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit code.

        Raises TimeoutError if it had to be killed.
        """
        self.send_signal(signal.SIGTERM)
        try:
            return await self.wait()
        except BaseException:
            await self.kill()
            raise

    async def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait until the process has ended and return its exit code. Raises TimeoutError."""
        await wait_until(lambda: self.is_gone, seconds)
        return self.exit_code or 0

    def output(self) -> str:
        """Return the output of all processes so far."""
        return self._log.read_text(errors="replace")

    async def printed(self, text: str) -> str:
        """Wait until the output contains a text, and return the output."""
        return await until(lambda: asyncio.to_thread(self.output), lambda output: text in output)


class ChildProcess(ForkedProcess):
    """A command of run.py. As a context manager it is started, and stopped at the end.

    It is a fork, which starts fast. If `has_own_interpreter` is set, it starts like a program: its
    start and its memory are those of the product, and what its modules read from the environment
    at their import applies. It can then be another version of the service, in the folder `root`.
    """

    has_own_interpreter = False
    root = ROOT

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        port: int = 0,
        ready: str | None = None,
    ) -> None:
        super().__init__(environment, log, port, ready)
        self._arguments = arguments

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(
        self,
        *,
        dies_at: str | None = None,
        stops_at: str | None = None,
        vanishes_at: str | None = None,
    ) -> None:
        """Start the process and wait until it is ready. Raises RuntimeError if it ended.

        With the name of a failpoint it dies, is paused, or vanishes from the network when it first
        reaches that failpoint.
        """
        ends = {"die": dies_at, "stop": stops_at, "vanish": vanishes_at}
        failures = ((how, name) for how, name in ends.items() if name)
        if not await self.run(self._choose_target(next(failures, None))):
            raise RuntimeError(f"The process did not start:\n{self.output()[-2000:]}")

    def _choose_target(self, failure: failing.Failure | None) -> Callable[[], None]:
        if not self.has_own_interpreter:
            return partial(failing.run_command, self._arguments, failure)
        if failure:
            raise ValueError("Only a fork can end at a failpoint")
        return partial(failing.run_interpreter, self.root, self._arguments)


class Service(ChildProcess):
    """A whole process of the service on a free port, by default `python run.py`."""

    def __init__(
        self, environment: Mapping[str, str], log: Path, arguments: Sequence[str] = ()
    ) -> None:
        port = free_port()
        super().__init__(arguments, {**environment, "PORT": str(port)}, log, port, "/readyz")

    def client(self, key: str) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self.base, headers={"X-API-Key": key})


class SandboxProcess(ChildProcess):
    """The sandbox on a free port, with variables such as SANDBOX_STATE."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        port = free_port()
        variables = {**environment, "SANDBOX_PORT": str(port)}
        super().__init__(["sandbox"], variables, log, port, "/_sandbox/clock")
