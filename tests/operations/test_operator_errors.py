"""Errors of the operator at a start or in a command: one line that says what to do, and exit 1."""

import asyncio
import os
import re
import secrets
import socket
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from service.commands import bootstrap, serve
from service.commands.operator_errors import describe_database_error
from service.config import Config, read_config
from service.db.transactions import acting_as, connected_database
from tests.api_requests import CERTIFICATE, expect
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.fixtures_service import RunCommand
from tests.harness.certificates import issued, write_pair
from tests.harness.databases import name_of
from tests.harness.environments import GENEROUS, SCALED
from tests.harness.paths import ROOT
from tests.harness.processes import Service, free_port
from tests.operations.test_commands import read_error


def _with(url: str, **parts: str) -> str:
    """Return a database URL with another user, place, database or query."""
    split = urlsplit(url)
    user = parts.get("user", f"{split.username}:{split.password}")
    place = parts.get("place", split.netloc.rpartition("@")[2])
    path = f"/{parts['name']}" if "name" in parts else split.path
    query = parts.get("query", split.query)
    return urlunsplit((split.scheme, f"{user}@{place}", path, query, ""))


@pytest.fixture
def login(database: str, owner: asyncpg.Connection) -> Iterator[str]:
    """The name and the password of a login without rights. The role is gone at the end."""
    name = f"login_{secrets.token_hex(4)}"
    with asyncio.Runner() as runner:

        async def execute(text: str) -> None:
            conn = await asyncpg.connect(database)
            await conn.execute(text)
            await conn.close()

        runner.run(execute(f"create role {name} login password '{name}'"))
        yield name
        runner.run(execute(f"drop owned by {name}; drop role {name}"))


# Addresses and logins


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"name": "nowhere"}, 'There is no database "nowhere" at '),
        ({"place": "127.0.0.1:1"}, "No PostgreSQL answers at 127.0.0.1:1. Start it, or correct"),
        ({"place": "nohost.invalid"}, "The host nohost.invalid is unknown. Correct its name."),
        ({"user": "stranger:x"}, "PostgreSQL refuses the login stranger. Correct user and"),
        ({"query": "sslmode=require"}, "No PostgreSQL with TLS answers at "),
        ({"query": "sslmode=maybe"}, "`sslmode` parameter must be one of"),
    ],
)
@pytest.mark.parametrize("variable", ["DATABASE_URL", "DATABASE_OWNER_URL"])
async def test_a_wrong_address_of_the_database_is_named(
    command: RunCommand, database: str, variable: str, parts: dict[str, str], message: str
) -> None:
    text = await read_error(command("attention", **{variable: _with(database, **parts)}))
    assert text.startswith(f"{variable}: {message}")


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://a:b@host/c", "postgresql://a:b@127.0.0.1:port/c"]
)
async def test_a_malformed_database_url_is_named(command: RunCommand, url: str) -> None:
    text = await read_error(command("attention", DATABASE_URL=url))
    assert text == "DATABASE_URL must have the form postgresql://user:password@host:port/database"


async def test_a_wrong_password_is_named_without_it(
    command: RunCommand, database: str, login: str
) -> None:
    url = _with(database, user=f"{login}:hunter2")
    text = await read_error(command("attention", DATABASE_URL=url))
    assert f"PostgreSQL refuses the login {login}. Correct user and password." in text
    assert "hunter2" not in text


async def test_a_missing_file_of_the_database_url_is_named(
    command: RunCommand, database: str
) -> None:
    url = _with(database, query="sslmode=verify-full&sslrootcert=/nowhere/ca.pem")
    text = await read_error(command("attention", DATABASE_URL=url))
    assert text == "DATABASE_URL names a file that cannot be read: sslrootcert=/nowhere/ca.pem"


async def test_a_login_without_the_right_to_connect_gets_the_grant(
    command: RunCommand, database: str, login: str, owner: asyncpg.Connection
) -> None:
    await owner.execute(f"revoke connect on database {name_of(database)} from public")
    text = await read_error(
        command("attention", DATABASE_URL=_with(database, user=f"{login}:{login}"))
    )
    assert text.endswith(f'Run: grant connect on database "{name_of(database)}" to {login};')


async def test_a_login_without_the_role_of_the_service_gets_the_grant(
    command: RunCommand, database: str, login: str
) -> None:
    variables = {
        "DATABASE_OWNER_URL": database,
        "DATABASE_URL": _with(database, user=f"{login}:{login}"),
    }
    text = await read_error(command("attention", **variables))
    cure = f"grant einvoice_service to {login};"
    assert text.startswith("DATABASE_URL: ") and text.endswith(cure)
    conn = await asyncpg.connect(database)
    await conn.execute(cure)
    await conn.close()
    assert (await command("attention", **variables)).code == 0


@pytest.mark.parametrize(
    "error, text",
    [
        (OSError(113, "No route to host"), "at h cannot be reached (No route to host)."),
        (TimeoutError(), "at h does not answer."),
        (ssl.SSLCertVerificationError("", ""), "The certificate of PostgreSQL at h is not trusted"),
        (asyncpg.TooManyConnectionsError(""), "raise max_connections or the connection limit"),
    ],
)
def test_errors_of_the_network_are_described(error: Exception, text: str) -> None:
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = "certificate has expired"
    assert text in describe_database_error(error, "DATABASE_URL", "postgresql://own:x@h/d")


@pytest.mark.parametrize(
    "message, cure",
    [
        ('role "einvoice_service" does not exist', "`run.py migrate`"),
        ("permission denied to create role", "alter role own createrole;"),
        ("own must be a member of einvoice_service", "grant einvoice_service, einvoice_across to"),
        ('must be member of role "einvoice_across"', "grant einvoice_service, einvoice_across to"),
        ('must be able to SET ROLE "einvoice_across"', "grant einvoice_service, einvoice_across"),
    ],
)
def test_missing_roles_and_grants_are_described_with_their_cure(message: str, cure: str) -> None:
    """PostgreSQL 15 to 18 write some of them in other words."""
    error = asyncpg.InsufficientPrivilegeError(message)
    assert cure in describe_database_error(error, "DATABASE_URL", "postgresql://own:x@h/d")


async def test_a_gap_in_tenant_isolation_is_one_line_without_a_traceback(
    command: RunCommand, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table documents no force row level security")
    done = await command("serve", PORT=str(free_port()))
    assert done.code == 1 and "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("Tenant isolation has gaps: ")


# Schemas


async def test_a_newer_schema_is_refused_by_its_name(
    command: RunCommand, owner: asyncpg.Connection
) -> None:
    await owner.execute(
        "insert into schema_migrations (name, sha256) values ('9999_future.sql', '')"
    )
    text = await read_error(command("migrate"))
    assert "newer version of the service (9999_future.sql). Start that version" in text


# Portal and certificates


async def test_refused_portal_credentials_are_named_with_what_to_check(
    command: RunCommand, company: Company
) -> None:
    done = await command("reconcile", PORTAL_CLIENT_SECRET="wrong")
    line = done.err.splitlines()[-1]
    assert done.code == 1 and line.startswith(f"Company {company.id}: The portal refuses the login")
    assert "Check PORTAL_CLIENT_ID and PORTAL_CLIENT_SECRET" in line and "retry-logins" in line


async def test_a_hold_that_stays_is_reported_by_reconcile(
    command: RunCommand, company: Company
) -> None:
    assert (await command("hold-sending")).code == 0
    done = await command("reconcile", PORTAL_SETTLE_SECONDS="3600")
    first, last = done.err.splitlines()[-2:]
    assert first == f"Comparing company {company.id}."
    assert last.startswith(f"Company {company.id}: Its sending is still held.")
    assert done.code == 0 and '"held": true' in done.out


async def test_wrong_variables_of_the_sandbox_are_one_line(command: RunCommand) -> None:
    text = await read_error(command("sandbox", SANDBOX_PORT="x"))
    assert "SANDBOX_PORT='x'" in text


async def test_clocks_that_differ_by_minutes_are_reported_by_reconcile(
    command: RunCommand, company: Company, sandbox: Sandbox
) -> None:
    await sandbox.move_clock(400)
    done = await command("reconcile")
    assert done.code == 1, done
    assert re.fullmatch(
        r"The portal clock and the database clock differ by (399|400|401) seconds \(at most 60 "
        r"allowed\)\. Nothing was sent\. Synchronise the clock of the database server \(NTP\)\.",
        done.err.splitlines()[-1],
    )


async def test_an_expired_certificate_is_refused(
    command: RunCommand, company: Company, tmp_path: Path
) -> None:
    past = datetime.now(UTC) - timedelta(days=2)
    write_pair(tmp_path, issued(not_before=past - timedelta(days=9), not_after=past))
    text = await read_error(
        command(
            "set-certificate",
            "--company",
            company.id,
            "--certificate",
            tmp_path / "certificate",
            "--key",
            tmp_path / "key",
            SECRET_KEY=GENEROUS["SECRET_KEY"],
        )
    )
    assert "certificate expired on" in text


async def test_a_start_warns_of_an_expired_certificate_and_of_mixed_addresses(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The service starts, because documents can be shown and cancelled without either."""
    end = datetime.now(UTC) - timedelta(days=2)
    files = write_pair(tmp_path, issued(not_before=end - timedelta(days=9), not_after=end))
    web = "https://preprod.myinvois.hasil.gov.my"
    async with Service(
        {**environment, **files, "PORTAL_WEB_BASE": web}, tmp_path / "log"
    ) as service:
        lines = service.output().splitlines()
    expired = (
        f"SIGNING_CERTIFICATE_FILE: The signing certificate expired on {end:%Y-%m-%d}. Install"
    )
    assert sum(expired in line and "level=WARNING" in line for line in lines) == 1
    assert sum("PORTAL_WEB_BASE (preproduction)" in line for line in lines) == 1


@pytest.mark.parametrize(
    "address", ["http://", "https://a b", "https://host:99999", "https://host:x", "http://host/?a"]
)
async def test_a_malformed_address_of_the_portal_is_named(
    command: RunCommand, address: str
) -> None:
    text = await read_error(command("attention", PORTAL_API_BASE=address))
    assert text.startswith("PORTAL_API_BASE must be an address with a host, like https://host")


# Ports

#: Variables of a start with a sandbox.
NO_PORTAL = dict.fromkeys(("PORTAL_API_BASE", "PORTAL_IDENTITY_BASE", "PORTAL_WEB_BASE"), "")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("variable", ["PORT", "SANDBOX_PORT"])
async def test_a_taken_port_is_one_line_before_anything_is_created(
    command: RunCommand, database: str, tmp_path: Path, taken: int, variable: str
) -> None:
    ports = {"PORT": str(free_port()), "SANDBOX_PORT": str(free_port()), variable: str(taken)}
    text = await read_error(
        command(
            "serve",
            DATABASE_URL="",
            DATA_DIR=str(tmp_path / "data"),
            **NO_PORTAL,
            **ports,
        )
    )
    assert text == (
        f"Cannot listen on 127.0.0.1:{taken}: another program uses it. "
        f"Stop that program, or set {variable} to another port."
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "variables, text",
    [
        ({"HOST": "nohost.invalid"}, "The host nohost.invalid is unknown. Correct HOST."),
        ({"HOST": "192.0.2.1"}, "this machine does not have the address. Correct HOST or PORT."),
        ({"SANDBOX_PORT": "{port}"}, "PORT and SANDBOX_PORT are both {port}. Change one."),
        ({"DATA_DIR": "/proc/data"}, "The folder /proc/data cannot be used: No such file or"),
        ({"DATA_DIR": "/etc/hostname"}, "The folder /etc/hostname cannot be used: File exists."),
    ],
)
async def test_an_unusable_address_or_folder_is_one_line(
    command: RunCommand, variables: dict[str, str], text: str
) -> None:
    port = str(free_port())
    changes = {name: value.format(port=port) for name, value in variables.items()}
    ports = {"PORT": port, "SANDBOX_PORT": str(free_port())}
    found = await read_error(command("serve", **{**NO_PORTAL, **ports, **changes}))
    assert text.format(port=port) in found


async def test_a_sandbox_that_cannot_start_ends_while_its_input_is_open(
    taken: int, tmp_path: Path
) -> None:
    """A thread that reads the input must not make the end of the interpreter fail."""
    environment = {**os.environ, "SANDBOX_PORT": str(taken), "SANDBOX_STATE": str(tmp_path / "s")}
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, str(ROOT / "run.py"), "sandbox", "--until-stdin-closes"],
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stderr
    text = (await process.stderr.read()).decode()
    assert await process.wait() == 1
    assert len(text.splitlines()) == 1 and text.startswith("The sandbox cannot use 127.0.0.1:")


# First starts


def _first_start(database: str, home: Path) -> Service:
    home.mkdir()
    environment = {
        **SCALED,
        "DATABASE_URL": database,
        "DATABASE_OWNER_URL": "",
        "DATA_DIR": str(home / "data"),
        "SANDBOX_PORT": str(free_port()),
    }
    return Service(environment, home / "service.log")


async def _prepare_demo(config: Config) -> str:
    """Create the demo company without a migration, which takes an advisory lock of its own."""
    async with connected_database(config, 2) as database:
        with acting_as("command"):
            return await serve._prepare_demo(config, database)


async def test_two_first_starts_at_once_create_one_demo_company(
    database: str, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    services = [_first_start(database, tmp_path / name) for name in ("one", "two")]
    try:
        await asyncio.gather(*[service.start() for service in services])
        assert await owner.fetchval("select count(*) from companies") == 1
        for service in services:
            await service.printed("/link/")
    finally:
        await asyncio.gather(*[service.stop() for service in services])


async def test_a_first_start_waits_while_another_creates_the_demo_company(
    environment: dict[str, str], owner: asyncpg.Connection, tmp_path: Path
) -> None:
    configs = [read_config({**environment, "DATA_DIR": str(tmp_path / name)}) for name in "ab"]
    async with owner.transaction():
        await owner.execute("lock table companies in exclusive mode")  # One start waits for it.
        starts = [asyncio.create_task(_prepare_demo(config)) for config in configs]
        await until(
            lambda: owner.fetchval(
                "select array_agg(l.granted order by l.granted) from pg_locks l "
                "join pg_database d on d.oid = l.database "
                "where l.locktype = 'advisory' and d.datname = current_database()"
            ),
            lambda granted: granted == [False, True],
        )
    texts = await asyncio.gather(*starts)
    assert sorted("The demo company was created" in text for text in texts) == [False, True]
    assert await owner.fetchval("select count(*) from companies") == 1
    assert await owner.fetchval("select count(*) from users") == 1


async def test_an_existing_database_with_other_companies_gets_no_demo_company(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await owner.execute("update companies set tin_code = 'C99'")
    config = read_config({**environment, "DATA_DIR": str(tmp_path)})
    text = await _prepare_demo(config)
    assert f"add-key --company {company.id}" in text and "no demo company was created" in text
    assert await owner.fetchval("select count(*) from companies") == 1
    assert await owner.fetchval("select count(*) from users") == 0


async def test_a_start_without_the_key_of_the_stored_secrets_is_refused(
    start: StartService, environment: dict[str, str], command: RunCommand
) -> None:
    api: Client = await start(**GENEROUS)
    await expect(api, 200, "PUT", CERTIFICATE, json=issued().pair)
    await bootstrap.check_database(read_config({**environment, **GENEROUS}))
    for key in ("", "A" * 43 + "="):
        done = await command("serve", SECRET_KEY=key, PORT=str(free_port()))
        assert done.code == 1 and len(done.err.splitlines()) == 1
        assert done.err.startswith("SECRET_KEY decrypts none of the 1 stored secrets (encrypted ")
        assert "restore the file secret-key of DATA_DIR" in done.err
