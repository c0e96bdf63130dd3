"""The whole service in one command: PostgreSQL and the sandbox where none is configured, the API, the background work."""

import asyncio
import base64
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web
from asyncpg import UniqueViolationError

from service import json_codec
from service.app import create_app
from service.commands import companies
from service.commands.bootstrap import start_logging, with_portal, with_postgres
from service.config import ROOT
from service.db.migrations import migrate
from service.db.statements import sql
from service.db.transactions import Database, acting_as, connected_pool
from service.http import app_keys
from service.http.server import HardenedRunner
from service.http.shutdown import STOP_SECONDS

PARTING_SECONDS = 0.1  # for what was sent before clients could know
LONGEST_STOP_SECONDS = 28  # then the process ends all the same: rows are safe
SANDBOX_START_SECONDS = 20

#: The company that a first start with nothing configured finds itself with.
DEMO_COMPANY = {
    "name": "Kopi Tiga Sdn. Bhd.",
    "tin_code": "C20880050010",
    "registration_number": "202001234567",
    "registration_type": "BRN",
    "business_activity_description": "Restaurants and mobile food service activities",
    "msic_code": "56101",
    "country": "MYS",
    "state": "14",
    "zip_code": "50480",
    "city": "Kuala Lumpur",
    "address": "12 Jalan Kiara",
    "phone": "+60312345678",
    "email": "accounts@kopitiga.example",
}


class ServeError(Exception):
    """Why the service cannot start, for a person."""


async def serve(config, background=True):
    """Runs until SIGTERM or SIGINT, then finishes what was accepted. Raises ServeError."""
    start_logging(config)
    stop, embedded = stop_event(), not config.database_url
    async with with_postgres(config) as config, AsyncExitStack() as stack:
        await migrate(
            config.database_owner_url or config.database_url, silence=config.database_silence
        )
        if not config.portal_api_base:
            demo = config
            config = await stack.enter_async_context(_with_sandbox(config))
            greeting = await _demo_company(demo)
        else:
            greeting = ""
        if config.workers == 1:
            await stack.enter_async_context(listening(config, background))
        else:
            await stack.enter_async_context(_processes(config, background))
        print(f"{_addresses(config, embedded)}{greeting}", flush=True)
        await stop.wait()


async def serve_child(config, background=True):
    """One of several processes on one port, for a parent that has prepared everything."""
    start_logging(config)
    stop = stop_event()
    async with listening(config, background, reuse_port=True):
        print("listening", flush=True)
        await stop.wait()


async def work(config):
    """Background work only, until SIGTERM or SIGINT."""
    start_logging(config)
    stop = stop_event()
    async with with_postgres(config) as config:
        await migrate(
            config.database_owner_url or config.database_url, silence=config.database_silence
        )
        runner = web.AppRunner(create_app(with_portal(config)))
        await runner.setup()
        print("The worker is running.", flush=True)
        await stop.wait()
        await runner.cleanup()


def stop_event():
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once: rows are safe."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop_or_exit():
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_or_exit)
    return stop


@asynccontextmanager
async def listening(config, background=True, reuse_port=None):
    """The API on its port. Leaving lets requests finish, each the last on its connection, then closes what is behind them."""
    app = create_app(config, background=background)
    runner = HardenedRunner(app, shutdown_timeout=STOP_SECONDS)
    try:
        await runner.setup()
        await web.TCPSite(runner, config.host, config.port, reuse_port=reuse_port).start()
    except OSError as fault:
        await runner.cleanup()
        raise ServeError(
            f"Cannot listen on {config.host}:{config.port}: {fault.strerror}. Set PORT to another."
        ) from None
    try:
        yield app
    finally:
        await _closed(app, runner)


async def _closed(app, runner):
    """Requests that are on their way are still taken for a moment: their senders could not know."""
    last_resort = asyncio.get_running_loop().call_later(LONGEST_STOP_SECONDS, os._exit, 1)
    app[app_keys.CLOSING].begin()
    await asyncio.sleep(PARTING_SECONDS)
    await runner.cleanup()
    last_resort.cancel()


@asynccontextmanager
async def _processes(config, background):
    """Several processes of the API; one that dies is replaced."""
    environment = {**os.environ, **_environment(config)}
    arguments = [sys.executable, str(ROOT / "run.py"), "serve", "--child"]
    if not background:
        arguments.append("--no-background")

    async def keep_one():
        while True:
            process = await asyncio.create_subprocess_exec(
                *arguments, env=environment, start_new_session=True
            )
            try:
                await process.wait()
            except asyncio.CancelledError:
                process.terminate()
                await process.wait()
                raise
            await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(keep_one()) for _ in range(config.workers)]
    try:
        await _answers(f"http://{config.host}:{config.port}/readyz", SANDBOX_START_SECONDS)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _environment(config):
    """What a child process has to be told because this one has found it out."""
    return {
        "DATABASE_URL": config.database_url,
        "SECRET_KEY": base64.b64encode(config.secret_key).decode(),
        "SECRET_KEY_PREVIOUS": base64.b64encode(config.secret_key_previous).decode(),
        "PORTAL_API_BASE": config.portal_api_base,
        "PORTAL_IDENTITY_BASE": config.portal_identity_base,
        "PORTAL_WEB_BASE": config.portal_web_base,
        "PORTAL_CLIENT_ID": config.portal_client_id,
        "PORTAL_CLIENT_SECRET": config.portal_client_secret,
        "PORTAL_INTERMEDIARY": "true" if config.portal_intermediary else "false",
        "TIN_VERIFICATION": config.tin_verification,
    }


@asynccontextmanager
async def _with_sandbox(config):
    """The Config with a sandbox of its own: another process, which ends with this one, however this one ends."""
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
        ready = asyncio.create_task(
            _answers(f"{config.portal_api_base}/_sandbox/settings", SANDBOX_START_SECONDS)
        )
        ended = asyncio.create_task(process.wait())
        await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
        if process.returncode is not None:
            raise ServeError(
                f"The sandbox cannot start on port {config.sandbox_port}. Set SANDBOX_PORT to another."
            )
        await ready
        yield config
    finally:
        process.stdin.close()
        await process.wait()


async def _answers(url, seconds):
    """Waits until an address answers with success. Raises ServeError when it does not in time."""
    try:
        async with asyncio.timeout(seconds), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(url) as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise ServeError(f"{url} did not answer within {seconds} seconds.") from None


async def _demo_company(config):
    """Make the demo company at the first start and return what to print: its key, or how to get another.

    A company that has the demo's TIN already, from a start with another DATA_DIR, is taken as the demo company.
    """
    marker = config.data_dir / "demo-company.json"
    if marker.exists():
        company = json_codec.loads(marker.read_bytes())["id"]
        return TRY_AGAIN.format(company=company) + TRY.format(port=config.port)
    async with connected_pool(config.database_url, 2, config.database_silence) as pool:
        database = Database(pool)
        with acting_as("command"):
            try:
                id = await companies.insert_company(database, DEMO_COMPANY)
            except UniqueViolationError:
                id, key = await _find_demo_company(database), None
            else:
                key = await companies.insert_key(config, database, id, "first start")
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(companies.printed({"id": id}))
    if key is None:
        return TRY_AGAIN.format(company=id) + TRY.format(port=config.port)
    return FIRST.format(name=DEMO_COMPANY["name"], company=id, key=key["key"]) + TRY.format(
        port=config.port
    )


async def _find_demo_company(database: Database) -> int:
    """Return the id of the company that has the demo company's TIN."""
    async with database.across() as conn:
        return (await sql.tin_companies(conn, tin=DEMO_COMPANY["tin_code"]))[0]


def _addresses(config, embedded):
    """Where everything is; a configured database's address is its owner's secret."""
    psql = f'psql:         psql "{config.database_url}"\n' if embedded else ""
    return f"""
The API:      http://{config.host}:{config.port}/api
The portal:   {config.portal_api_base}
{psql}"""


FIRST = """
A demo company was made: {name}, company {company}. Its key is shown this once:

  export KEY={key}
"""
TRY_AGAIN = """
The demo company is company {company}. Its key was shown at the first start; another one:

  export KEY=$(.venv/bin/python run.py add-key --company {company} | sed 's/.*"key": "\\([^"]*\\)".*/\\1/')
"""
TRY = """
An invoice, submitted as it is created, and how it then stands (Valid after about two seconds, with its link):

  curl -s http://127.0.0.1:{port}/api/invoices -H "X-API-Key: $KEY" -H 'Content-Type: application/json' -d '{{
    "type": "INVOICE", "code": '$(date +%s)', "issueDateTime": "'$(date -u +%Y-%m-%dT%H:%M:%SZ)'", "submitImmediately": true,
    "buyer": {{"type": "LOCAL_INDIVIDUAL", "name": "Aminah binti Salleh",
              "registration": {{"type": "NRIC", "number": "900101105566"}}, "contactNumber": "+60123456789",
              "address": {{"line1": "5 Jalan Dahlia", "city": "Shah Alam", "state": "10", "zipCode": "40150", "country": "MYS"}}}},
    "lineItems": [{{"id": "1", "description": "Coffee beans, 1 kg", "classifications": ["022"],
                   "unit": {{"code": "KGM", "price": 48.50, "count": 2}},
                   "taxDetails": [{{"taxType": "02", "taxRate": {{"percentage": 8}}}}], "originCountry": "MYS"}}]}}'

  curl -s 'http://127.0.0.1:{port}/api/invoices?per_page=1' -H "X-API-Key: $KEY"
  curl -s http://127.0.0.1:{port}/api/invoices/1/submitted-documents -H "X-API-Key: $KEY"
"""
