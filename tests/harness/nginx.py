"""The nginx of the machine with the configuration of deploy/nginx/, on free ports."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509

from tests.harness.certificates import make_server_certificate
from tests.harness.paths import ROOT, find_program
from tests.harness.processes import START_SECONDS, STOP_SECONDS, free_port
from tests.harness.waiting import until

CONFIGURATION = ROOT / "deploy" / "nginx"
NAME = "einvoice.example"
#: The last of the documented commands that configure cells.
RELOAD = "nginx -t && systemctl reload nginx\n"
#: What the main configuration of a distribution has. Temporary files stay in the test's folder.
MAIN = """
daemon off;
{user}
worker_processes 2;
pid {home}/nginx.pid;
error_log {home}/main.log info;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    include {home}/conf.d/*.conf;
}}
"""


NGINX = find_program("nginx")
#: Skips tests where there is no nginx.
needs_nginx = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed (Debian and Ubuntu: apt install nginx)"
)


class Local(AbstractResolver):
    """Resolves every name to this machine."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host="127.0.0.1", port=port, family=2, proto=0, flags=0)
        ]

    async def close(self) -> None:
        """Do nothing."""


class Nginx:
    """An nginx in front of API processes. As a context manager it is started and stopped."""

    name = NAME

    def __init__(self, home: Path, ports: Sequence[int]) -> None:
        self.home, self.port, self.plain_port = home, free_port(), free_port()
        self.base = f"https://{self.name}:{self.port}"
        self.certificate, self._key = home / "fullchain.pem", home / "privkey.pem"
        self._process: asyncio.subprocess.Process | None = None
        self._write_files(ports)

    def _write_files(self, ports: Sequence[int]) -> None:
        issued = make_server_certificate(x509.DNSName(self.name))
        self.certificate.write_text(issued.certificate_pem)
        self._key.write_text(issued.key_pem)
        folder = self.home / "conf.d"
        folder.mkdir()
        user = "user root;" if os.geteuid() == 0 else ""
        (self.home / "nginx.conf").write_text(MAIN.format(home=self.home, user=user))
        site = (CONFIGURATION / "einvoice.conf").read_text().replace(NAME, self.name)
        (folder / "einvoice.conf").write_text(self._localize(site))
        self._write_upstream(folder, ports)

    def _write_upstream(self, folder: Path, ports: Sequence[int]) -> None:
        upstream = (CONFIGURATION / "upstream-systemd.conf").read_text()
        for example, port in zip(("8081", "8082"), ports, strict=True):
            assert f":{example} " in upstream
            upstream = upstream.replace(f":{example} ", f":{port} ")
        (folder / "upstream.conf").write_text(upstream)

    def _localize(self, text: str) -> str:
        """Replace ports and paths, and nothing else."""
        text = re.sub(r"listen 80\b", f"listen 127.0.0.1:{self.plain_port}", text)
        text = re.sub(r"listen 443\b", f"listen 127.0.0.1:{self.port}", text)
        text = re.sub(r"/etc/nginx/(tls/)?", f"{self.home}/", text)
        return text.replace("/var/log/nginx/", f"{self.home}/")

    async def check(self) -> str:
        """Return the output of `nginx -t`."""
        process = await self._start("-t")
        output = await process.communicate()
        return output[1].decode()

    async def _start(self, *options: str) -> asyncio.subprocess.Process:
        assert NGINX
        command = [NGINX, "-p", str(self.home), "-c", str(self.home / "nginx.conf"), *options]
        pipe = asyncio.subprocess.PIPE if options else asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(*command, stderr=pipe, start_new_session=True)

    async def __aenter__(self) -> Self:
        self._process = await self._start()
        async with asyncio.timeout(START_SECONDS):
            await until(self._accepts)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process
        self._process.send_signal(signal.SIGQUIT if error[0] is None else signal.SIGTERM)
        async with asyncio.timeout(STOP_SECONDS):
            await self._process.wait()

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def reload(self) -> None:
        """Load the configuration again, and wait until new workers have taken over."""
        former = await self._workers()
        assert self._process
        self._process.send_signal(signal.SIGHUP)
        await until(self._workers, lambda pids: len(pids - former) == 2)

    async def _workers(self) -> set[int]:
        assert self._process
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return set(map(int, children.read_text().split()))

    def access_log(self) -> str:
        """Return the log of requests so far."""
        return (self.home / "access.log").read_text()

    def all_logs(self) -> str:
        """Return everything that nginx has logged."""
        return "".join(path.read_text() for path in self.home.glob("*.log"))


class CellsNginx(Nginx):
    """An nginx in front of two cells, each with one API process."""

    name = "invoices.example.com"

    def _write_upstream(self, folder: Path, ports: Sequence[int]) -> None:
        self._run_documented_commands()
        path = folder / "einvoice-cells.conf"
        cells = path.read_text()
        for network, port in zip(("10.0.1", "10.0.2"), ports, strict=True):
            cells = cells.replace(f"{network}.11:8081", f"127.0.0.1:{port}")
            cells = cells.replace(f"    server {network}.11:8082 max_fails=0;\n", "")
        assert "10.0." not in cells
        path.write_text(self._localize(cells))

    def _run_documented_commands(self) -> None:
        """Run the commands of docs/scaling.md that configure cells, in the test's folder."""
        blocks = (ROOT / "docs" / "scaling.md").read_text().split("```")
        [commands] = [block for block in blocks if block.startswith("sh\n") and RELOAD in block]
        script = commands.removeprefix("sh\n").replace(RELOAD, "")
        environment = {"PATH": os.environ["PATH"], "NAME": self.name}
        subprocess.run(
            ["sh", "-e", "-c", script.replace("/etc/nginx/", f"{self.home}/")],
            cwd=ROOT,
            env=environment,
            check=True,
        )
