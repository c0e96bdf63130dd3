"""PostgreSQL with failover: three machines with etcd and Patroni, and HAProxy in front of them.

They run with the configuration of deploy/patroni/. A machine is a group of processes with its own
ports and folder. It can lose its power, or its network: then its processes are paused.
"""

import asyncio
import csv
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import aiohttp

from harness.paths import ROOT, find_program
from harness.postgres_server import launch
from harness.processes import GONE, free_port, read_status
from harness.waiting import until
from service.embedded_postgres.binaries import Account, choose_account
from service.embedded_postgres.lifecycle import change_owner

CONFIGURATION = ROOT / "deploy" / "patroni"
#: Names of the machines, and the last part of their addresses in the configuration.
MACHINES = {"db1": 11, "db2": 12, "db3": 13}
#: Ports of a machine, and of HAProxy, in the configuration.
MACHINE_PORTS, PROXY_PORTS = (2379, 2380, 5432, 8008), (5000, 5001)
#: Program -> its package in Debian and Ubuntu.
PACKAGES = {"etcd": "etcd-server", "patroni": "patroni", "haproxy": "haproxy"}
LOGINS = ("superuser", "replication", "rewind", "restapi")
#: The limit of waits for a cluster that is formed or repaired, on a busy machine.
CLUSTER_SECONDS = 180
HTTP_TIMEOUT = aiohttp.ClientTimeout(total=5)


def find_missing_packages() -> list[str]:
    """Return the packages that are not installed."""
    missing = [package for program, package in PACKAGES.items() if not find_program(program)]
    return missing if find_postgres() else [*missing, "postgresql"]


def find_postgres() -> Path | None:
    """Return the folder of the programs of an installed PostgreSQL that Patroni can run."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/pg_rewind")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the cluster as Patroni describes it."""

    name: str
    role: str
    state: str
    timeline: int


class Machine:
    """The processes of one machine: etcd, Patroni and PostgreSQL."""

    def __init__(self, name: str, home: Path, account: Account | None) -> None:
        self.name, self.home = name, home
        self.ports = {port: free_port() for port in MACHINE_PORTS}
        self._account = account
        self._processes: list[subprocess.Popen[bytes]] = []
        home.mkdir()
        change_owner(home, account)

    @property
    def api(self) -> str:
        """Return the address of Patroni's REST API."""
        return f"http://127.0.0.1:{self.ports[8008]}"

    def start(self, etcd: str, patroni: str, passwords: dict[str, str]) -> None:
        """Start the machine with the texts of its configuration files."""
        (self.home / "patroni.yml").write_text(patroni)
        assignments = [f"{name}={value}" for name, value in passwords.items()]
        settings = re.findall(r"^ETCD_\w+=.*", etcd, re.MULTILINE)
        programs = find_program("etcd"), find_program("patroni")
        assert all(programs)
        self._processes = [
            self._launch("etcd", [*settings, programs[0]]),
            self._launch("patroni", [*assignments, programs[1], self.home / "patroni.yml"]),
        ]

    def _launch(self, name: str, command: Sequence[Any]) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("ab") as log:
            return launch(["env", *map(str, command)], self._account, stdout=log, stderr=log)

    def lose_power(self) -> None:
        """Kill all processes at once."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def lose_network(self) -> None:
        """Pause all processes. Others can connect and get no response."""
        self._signal(signal.SIGSTOP)

    def regain_network(self) -> None:
        """Continue all processes."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes, and to those that they have started meanwhile."""
        done: set[int] = set()
        while new := [pid for pid in self._find_processes() if pid not in done]:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            done.update(new)

    def _find_processes(self) -> list[int]:
        """Return the processes of the machine that run, parents first."""
        waiting = [process.pid for process in self._processes if process.poll() is None]
        waiting += self._find_postmaster()
        found: list[int] = []
        for pid in waiting:  # It grows.
            if pid in found or read_status(pid).get("State", "") in GONE:
                continue
            found.append(pid)
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                waiting += map(int, children.split())
        return found

    def _find_postmaster(self) -> list[int]:
        """Return the first process of PostgreSQL, which is no child of Patroni.

        After a power loss its file names a process that is gone, or another one.
        """
        data = self.home / "postgresql"
        with suppress(OSError, ValueError, IndexError):
            pid = int((data / "postmaster.pid").read_text().splitlines()[0])
            if Path(f"/proc/{pid}/cwd").readlink() == data.resolve():
                return [pid]
        return []


class FailoverCluster:
    """Three machines and HAProxy. As a context manager they are started and stopped."""

    def __init__(self) -> None:
        self.home = Path(mkdtemp(prefix="einvoice-patroni-"))
        self._account = choose_account(self.home)
        change_owner(self.home, self._account)
        self.machines = {name: Machine(name, self.home / name, self._account) for name in MACHINES}
        self._proxy_ports = {port: free_port() for port in PROXY_PORTS}
        self._passwords = {
            f"PATRONI_{login.upper()}_PASSWORD": secrets.token_hex(16) for login in LOGINS
        }
        self._proxy: subprocess.Popen[bytes] | None = None

    def url(self, login: str, database: str, port: int = 5000) -> str:
        """Return the address of a database at HAProxy for `name:password`.

        `port` is that of the configuration: 5000 leads to the primary, 5001 to standbys.
        """
        address = f"127.0.0.1:{self._proxy_ports[port]}"
        return f"postgresql://{login}@{address}/{database}?sslmode=disable"

    @property
    def superuser(self) -> str:
        """Return the name and the password of the superuser."""
        return f"postgres:{self._passwords['PATRONI_SUPERUSER_PASSWORD']}"

    async def __aenter__(self) -> Self:
        try:
            for name in self.machines:
                self.start(name)
            await self.wait_until_whole()
            self._start_proxy()
            await until(self._has_one_primary, seconds=CLUSTER_SECONDS)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._proxy:
            self._proxy.terminate()
            self._proxy.wait()
        for machine in self.machines.values():
            machine.lose_power()
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self, name: str) -> None:
        """Start a machine, for the first time or after it has lost its power."""
        machine = self.machines[name]
        etcd, patroni = (self._read(file, name) for file in ("etcd", "patroni.yml"))
        machine.start(etcd, self._localize_patroni(patroni, machine), self._passwords)

    def _read(self, file: str, name: str) -> str:
        """Return a file of the configuration as it is on a machine."""
        text = (CONFIGURATION / file).read_text()
        own, lists = f"10.0.0.{MACHINES[name]}:", r"(?m)^ETCD_INITIAL_CLUSTER=.*|^    - 10\..*"
        kept = iter(re.findall(lists, text))
        text = text.replace("db1", name).replace("10.0.0.11:", own)
        text = re.sub(lists, lambda _: next(kept), text)
        return self._localize(text).replace("/var/lib/etcd/einvoice", f"{self.home / name}/etcd")

    def _localize(self, text: str) -> str:
        """Replace addresses and ports."""
        ports = {MACHINES[name]: machine.ports for name, machine in self.machines.items()}
        return re.sub(
            r"10\.0\.0\.(1[123]):(\d+)",
            lambda found: f"127.0.0.1:{ports[int(found[1])][int(found[2])]}",
            text,
        ).replace("10.0.0.0/24", "127.0.0.1/32")

    def _localize_patroni(self, text: str, machine: Machine) -> str:
        """Replace paths, and the watchdog, of which a machine has one."""
        changes = {
            "/usr/lib/postgresql/15/bin": str(find_postgres()),
            "/var/lib/postgresql/15/einvoice.pgpass": f"{machine.home}/pgpass",
            "/var/lib/postgresql/15/einvoice": f"{machine.home}/postgresql",
            "/var/run/postgresql": str(machine.home),
            "mode: required": "mode: off",
        }
        for example, value in changes.items():
            assert example in text, example
            text = text.replace(example, value)
        return text

    def _start_proxy(self) -> None:
        text = (CONFIGURATION / "haproxy.cfg").read_text()
        for name, machine in self.machines.items():
            text = re.sub(rf"(server {name} .*) 8008", rf"\1 {machine.ports[8008]}", text)
        for example, port in self._proxy_ports.items():
            text = text.replace(f"127.0.0.1:{example}", f"127.0.0.1:{port}")
        # Another user and the log of the system need root and a daemon.
        text = re.sub(r"(?m)^    (user|group|log /dev).*\n", "", text)
        text = text.replace("/run/haproxy/", f"{self.home}/")
        (self.home / "haproxy.cfg").write_text(self._localize(text))
        with (self.home / "haproxy.log").open("ab") as log:
            command = [find_program("haproxy") or "", "-db", "-f", self.home / "haproxy.cfg"]
            self._proxy = launch(command, self._account, stdout=log, stderr=log)

    async def _has_one_primary(self) -> bool:
        """Return whether HAProxy has checked all servers. It begins with all of them."""
        if not self._proxy or self._proxy.poll() is not None:
            raise RuntimeError(f"HAProxy has stopped:\n{self.logs()}")
        try:
            reader, writer = await asyncio.open_unix_connection(self.home / "admin.sock")
        except OSError:
            return False
        writer.write(b"show stat\n")
        rows = list(csv.DictReader((await reader.read()).decode().splitlines()))
        writer.close()
        servers = [
            row for row in rows if row["# pxname"] == "primary" and row["svname"] in MACHINES
        ]
        return sum(row["status"].startswith("UP") for row in servers) == 1

    async def members(self) -> list[Member]:
        """Return the members, as one that answers describes them."""
        for machine in self.machines.values():
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with (
                    aiohttp.ClientSession(timeout=HTTP_TIMEOUT) as client,
                    client.get(f"{machine.api}/cluster") as response,
                ):
                    found = (await response.json())["members"]
                return [
                    Member(one["name"], one["role"], one["state"], one.get("timeline", 0))
                    for one in found
                ]
        return []

    async def primary(self) -> str:
        """Return the name of the primary. Raises StopIteration if there is none."""
        return next(one.name for one in await self.members() if one.role == "leader")

    async def wait_until_whole(self) -> None:
        """Wait for a primary, a synchronous standby and another one, all on one timeline."""
        try:
            await until(self.members, _is_whole, CLUSTER_SECONDS)
        except TimeoutError:
            raise RuntimeError(f"{await self.members()}\n{self.logs()}") from None

    def logs(self) -> str:
        """Return the ends of all logs."""
        logs = sorted(self.home.rglob("*.log"))
        return "\n".join(f"{log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    async def switch_over(self) -> str:
        """Switch over to the synchronous standby with patronictl, and return its output."""
        members = await self.members()
        candidate = next(one.name for one in members if one.role == "sync_standby")
        assignments = [f"{name}={value}" for name, value in self._passwords.items()]
        settings = ["-c", str(self.machines[candidate].home / "patroni.yml")]
        options = ["--candidate", candidate, "--force"]
        process = await asyncio.create_subprocess_exec(
            *["env", *assignments, find_program("patronictl") or "", *settings],
            *["switchover", *options, "einvoice"],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return output.decode()


def _is_whole(members: list[Member]) -> bool:
    roles = sorted(one.role for one in members)
    is_running = all(one.state in ("running", "streaming") for one in members)
    one_timeline = len({one.timeline for one in members}) == 1
    return roles == ["leader", "replica", "sync_standby"] and is_running and one_timeline
