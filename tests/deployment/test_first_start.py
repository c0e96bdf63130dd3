"""The first start of a deployment: secrets, logins of the database, messages to the supervisor."""

import asyncio
import base64
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.db.migrations import migrate
from tests.harness.databases import administer, create_database, name_of, replace_login
from tests.harness.paths import ROOT
from tests.harness.processes import Service
from tests.harness.waiting import patience

DEPLOY = ROOT / "deploy"


def make_secrets(folder: Path) -> dict[str, str]:
    """Run the script, and return the contents of the files by their names."""
    script = ["sh", str(DEPLOY / "make-secrets.sh"), str(folder), "postgres:5432"]
    subprocess.run(script, check=True, capture_output=True)
    return {path.name: path.read_text().strip() for path in folder.iterdir()}


def test_secrets_are_random_and_are_made_once(tmp_path: Path) -> None:
    made, others = make_secrets(tmp_path / "a"), make_secrets(tmp_path / "b")
    empty = {name: made.pop(name) for name in ("portal-client-secret", "secret-key-previous")}
    assert set(empty.values()) == {""}
    assert set(made.values()) & set(others.values()) == set()
    assert make_secrets(tmp_path / "a") == {**made, **empty}
    assert len(base64.b64decode(made["secret-key"])) == 32
    for login in ("owner", "app"):
        url = made["database-url" if login == "app" else "database-owner-url"]
        parts = urlsplit(url)
        assert (parts.username, parts.password) == (f"einvoice_{login}", made[f"{login}-password"])
        assert parts.netloc.endswith("@postgres:5432") and parts.path == "/einvoice"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
async def test_roles_of_the_script_are_those_that_the_service_needs(
    cluster: str, tmp_path: Path
) -> None:
    made = make_secrets(tmp_path / "secrets")
    logins = {login: f"{login}_{secrets.token_hex(6)}" for login in ("owner", "app")}
    async with create_database(cluster) as database:
        options = [f"--set={login}={name}" for login, name in logins.items()]
        script = ["psql", "-X", "-q", *options, "-f", str(DEPLOY / "postgres" / "roles.sql")]
        variables = {
            f"{login.upper()}_PASSWORD_FILE": str(tmp_path / "secrets" / f"{login}-password")
            for login in logins
        }
        done = await asyncio.create_subprocess_exec(*script, database, env=variables)
        assert await done.wait() == 0
        urls = {
            login: replace_login(database, f"{name}:{made[f'{login}-password']}")
            for login, name in logins.items()
        }
        assert len(await migrate(urls["owner"])) > 16
        assert await migrate(urls["app"]) == []
        await administer(cluster, f"alter database {name_of(database)} owner to current_user")
        await administer(database, f"drop owned by {logins['app']}; drop role {logins['app']}")
        await administer(database, f"reassign owned by {logins['owner']} to current_user")
        await administer(database, f"drop owned by {logins['owner']}; drop role {logins['owner']}")


@pytest.fixture
def notifications(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield the socket of a supervisor, at tmp_path/notify."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        yield receiver


async def test_service_tells_the_supervisor_that_it_is_ready_and_stops(
    environment: dict[str, str], tmp_path: Path, notifications: socket.socket
) -> None:
    loop = asyncio.get_running_loop()
    variables = {**environment, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    async with Service(variables, tmp_path / "service.log") as service, patience():
        assert await loop.sock_recv(notifications, 100) == b"READY=1"
        service.send_signal(signal.SIGTERM)
        assert await loop.sock_recv(notifications, 100) == b"STOPPING=1"
        assert await service.wait() == 0
