"""The service: the API and the background work, with PostgreSQL and a sandbox if none is set."""

import asyncio
import os
import secrets
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web
from yarl import URL

from service import logs, schema
from service.app import create_app
from service.commands.banner import describe_addresses, describe_demo, describe_others
from service.commands.bootstrap import (
    check_database,
    logged_run,
    migrate_database,
    read_running_config,
    record_addresses,
    run,
    warn_of_settings,
    with_portal,
    with_postgres,
)
from service.commands.codes import share_with_sandbox
from service.commands.command_line import CommandLine
from service.commands.companies import add_company, add_key
from service.commands.operator_errors import check_folder, check_port
from service.config import ROOT, Config, read_config
from service.dashboard import people
from service.dashboard.links import SIGN_IN, NewLink, make_link
from service.db.connections import connect
from service.db.statements import sql
from service.db.transactions import Database, acting_as, connected_database
from service.errors import OperatorError
from service.http import app_keys
from service.http.server import HardenedRunner, Site, close_idle_connections, close_port

LONGEST_STOP_SECONDS = 28  # After DRAIN_SECONDS. Then the process ends; commits are safe.
START_SECONDS = 20  # Of a process until it answers.
SUPPORT_ROLE = "einvoice_support"

#: The company that a first start without configuration creates.
DEMO_COMPANY: dict[str, str] = schema.EXAMPLES["company_update"]["A whole profile"]

DEMO_OWNER = people.Person("owner@kopitiga.example", "Demo Owner")


def register(line: CommandLine) -> None:
    line.add("serve", start)
    line.add("worker", _work)
    line.add("sandbox", _sandbox)


def start(no_background: bool = False) -> None:
    """Run the API and the background work.

    This is the default command. `--no-background` answers requests only.
    """
    run(serve(read_config(), background=not no_background))


def _work() -> None:
    """Run the background work only."""
    run(work(read_running_config()))


async def serve(config: Config, background: bool = True) -> None:
    """Serve until SIGTERM or SIGINT, then finish accepted work. Raises OperatorError."""
    embedded = not config.database_url
    with logged_run(config, "serve") as stop:
        warn_of_settings(config)
        _check_ports(config)
        async with with_postgres(config) as config, AsyncExitStack() as stack:
            await migrate_database(config)
            await check_database(config)
            support = await _create_support_login(config) if embedded else None
            greeting = ""
            if not config.portal_api_base:
                check_folder(config.data_dir)
                config = await stack.enter_async_context(_with_sandbox(config))
                stack.enter_context(record_addresses(config))
                async with connected_database(config, 2) as database:
                    with acting_as("command"):
                        greeting = await _prepare_demo(config, database)
            await stack.enter_async_context(serve_api(config, background))
            _announce(f"{describe_addresses(config, support)}{greeting}", is_needed=bool(greeting))
            await _wait_for_stop(stop)


async def work(config: Config) -> None:
    """Do background work only, until SIGTERM or SIGINT. Raises OperatorError."""
    with logged_run(config, "worker") as stop:
        warn_of_settings(config)
        if config.worker_port:
            check_port(config.host, config.worker_port, "WORKER")
        async with with_postgres(config) as config:
            await migrate_database(config)
            await check_database(config)
            async with _background_work(with_portal(config)):
                _announce("The worker is running.")
                await _wait_for_stop(stop)


def _notify_supervisor(state: str) -> None:
    """Report a state to systemd, if it waits for one: units of the type notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


def _announce(text: str, is_needed: bool = False) -> None:
    """Print a text for people. If the log is JSON, only one that is needed: it is no object."""
    if is_needed or not logs.is_json():
        print(text, flush=True)


async def _wait_for_stop(stop: asyncio.Event) -> None:
    """Wait for the end, and report both states to the supervisor."""
    _notify_supervisor("READY=1")
    await stop.wait()
    _notify_supervisor("STOPPING=1")


async def _create_support_login(config: Config) -> str:
    """Give the login of support staff at the embedded PostgreSQL a password. Return its address.

    It reads the rows of all companies and no secret, and changes nothing.
    """
    password = secrets.token_urlsafe(18)
    conn = await connect(config.database_url, {}, silence=config.database_silence)
    try:
        async with conn.transaction():
            commands = await sql.support_login_commands(conn, name=SUPPORT_ROLE, password=password)
            for row in commands:
                await conn.execute(row["command"])
    finally:
        await conn.close()
    return str(URL(config.database_url).with_user(SUPPORT_ROLE).with_password(password))


def _check_ports(config: Config) -> None:
    """Raise OperatorError if a port is taken, before anything is started or stored."""
    check_port(config.host, config.port)
    if not config.portal_api_base:
        check_port("127.0.0.1", config.sandbox_port, "SANDBOX")
        if config.port == config.sandbox_port != 0:
            raise OperatorError(f"PORT and SANDBOX_PORT are both {config.port}. Change one.")


@asynccontextmanager
async def serve_api(config: Config, background: bool = True) -> AsyncIterator[web.Application]:
    """Serve the API on its port during the block, then finish its requests."""
    app = create_app(config, background=background)
    runner = HardenedRunner(app)
    try:
        await runner.setup()
        site = Site(runner, config.host, config.port)
        await site.start()
    except BaseException:
        await runner.cleanup()  # What has started must end before the event loop does.
        raise
    try:
        yield app
    finally:
        await _close(app, runner, site)


@asynccontextmanager
async def _background_work(config: Config) -> AsyncIterator[None]:
    """Run the background work, and answer health checks, during the block."""
    runner = HardenedRunner(create_app(config, api=False))
    try:
        await runner.setup()
        if config.worker_port:
            await web.TCPSite(runner, config.host, config.worker_port).start()
        yield
    finally:
        await runner.cleanup()


async def _close(app: web.Application, runner: web.AppRunner, site: Site) -> None:
    """Drain, close the port, then the connections, and shut down.

    Until the port closes, clients keep their connections, so that few new ones are on the way.
    """
    shutdown, drain = app[app_keys.SHUTDOWN], app[app_keys.CONFIG].drain
    last_resort = asyncio.get_running_loop().call_later(drain + LONGEST_STOP_SECONDS, os._exit, 1)
    shutdown.begin(drain)
    await asyncio.sleep(drain)
    await close_port(site)
    shutdown.closes_connections = True
    await close_idle_connections(runner)
    await runner.cleanup()
    last_resort.cancel()


def _sandbox(until_stdin_closes: bool) -> None:
    """Run the portal sandbox alone. docs/sandbox.md describes it."""
    # Imported here because other commands do not need it.
    from service.sandbox.app import run as run_sandbox
    from service.sandbox.settings import Settings

    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        settings = Settings.from_env(os.environ)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    run_sandbox(settings)


def _end_with_stdin() -> None:
    """End this process when the other end of stdin has ended. The sandbox loses nothing.

    It does not read by `sys.stdin`, whose lock would make the end of the interpreter fail.
    """
    while os.read(0, 1024):
        pass
    os._exit(0)


@asynccontextmanager
async def _with_sandbox(config: Config) -> AsyncIterator[Config]:
    """Run a sandbox that ends with this process, and yield the configuration for it."""
    config = with_portal(config)
    environment = {
        **os.environ,
        "SANDBOX_PORT": str(config.sandbox_port),
        "SANDBOX_STATE": str(config.data_dir / "sandbox.sqlite3"),
        "SANDBOX_RATE_SCALE": str(config.portal_rate_scale),
    }
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, str(ROOT / "run.py"), "sandbox", "--until-stdin-closes"],
        stdin=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        ready = asyncio.create_task(_wait_for(f"{config.portal_api_base}/_sandbox/settings"))
        ended = asyncio.create_task(process.wait())
        await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
        if process.returncode is not None:
            raise OperatorError(
                f"The sandbox cannot start on port {config.sandbox_port}, "
                "for the reason in the line above."
            )
        await ready
        yield config
    finally:
        if process.stdin:
            process.stdin.close()
        await process.wait()


async def _wait_for(url: str) -> None:
    """Wait until an address responds with status 200. Raises OperatorError on a timeout."""
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(url) as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise OperatorError(f"{url} did not answer within {START_SECONDS} seconds.") from None


async def _prepare_demo(config: Config, database: Database) -> str:
    """Create the demo company in an empty database, and return the text for the operator.

    It has a link that signs the company's owner in, and the key if the company is new. A database
    with other companies gets no demo company. The sandbox gets the lists that were imported while
    it did not run.
    """
    await share_with_sandbox(config, database)
    key = None
    # Of several first starts, one creates the company and its owner.
    async with database.across() as conn, conn.transaction():
        await sql.transaction_lock(conn, name="einvoice demo company")
        if demo := await sql.companies_of_tin(conn, wanted=DEMO_COMPANY["tin_code"]):
            company_id = demo[0]
        elif others := [row["company_id"] for row in await sql.sending_companies(conn)]:
            return describe_others(others)
        else:
            company_id = (await add_company(config, database, **DEMO_COMPANY))["id"]
            key = (await add_key(config, database, company_id, "first start"))["key"]
        owner_id, _ = await people.invite(database, company_id, DEMO_OWNER, "owner")
    new = NewLink(owner_id, company_id, purpose=SIGN_IN)
    link = await make_link(database, config.public_url, new)
    return describe_demo(config, link, company_id, DEMO_COMPANY["name"], key)
