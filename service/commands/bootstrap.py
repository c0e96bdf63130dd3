"""The start of every command: an event loop, a configuration, and a migrated PostgreSQL."""

import asyncio
import gc
import inspect
import logging
import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import uvloop

from service import json_codec, logs
from service.commands.command_line import print_json
from service.commands.companies import require_company
from service.commands.operator_errors import DATABASE_ERRORS, describe_database_error
from service.config import SECRET_KEY_BYTES, SETTINGS, Config, describe_settings, read_config
from service.db.cells import check_cell
from service.db.encryption import version_of_key
from service.db.migrations import migrate
from service.db.statements import sql
from service.db.transactions import acting_as, connected_database
from service.documents.signing.certificate import find_warnings
from service.embedded_postgres.lifecycle import postgres
from service.errors import OperatorError
from service.json_types import JsonMapping
from service.portal.addresses import find_address_problems
from service.submission import signers
from service.version import VERSION

OPEN_FILES = 65_536
#: Objects between two garbage collections. A request makes several hundred, nearly all without
#: cycles; the default of 700 would collect at every other request.
GC_THRESHOLD = 10_000
#: The event loop waits for this long, several times in a request, while a thread is computing.
SWITCH_SECONDS = 0.001
SANDBOX_CLIENT = {"portal_client_id": "sandbox-client", "portal_client_secret": "sandbox-secret"}
ADDRESS_FILE = "running.json"
#: Fields of Config that the file of addresses has.
ADDRESSES = ("host", "port", "sandbox_port", "public_url")
REPLACE_CERTIFICATE = "Install another certificate with its key, and restart."

NOT_DURABLE = (
    "PostgreSQL has {} off, so that a crash can lose what it has acknowledged, and documents could "
    "be sent twice. Set it to on and reload PostgreSQL."
)

_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


def run(work: Coroutine[object, None, _Result]) -> _Result:
    """Run a coroutine with uvloop and return its result."""
    # No core dumps: memory holds keys, secrets and personal data.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _raise_file_limit()
    gc.freeze()  # Loaded modules stay, so the collector need not scan them.
    gc.set_threshold(GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _raise_file_limit() -> None:
    """Raise the limit of open files, of which each connection is one. The default is often 1024."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class StopEvent(asyncio.Event):
    """Is set by SIGTERM and SIGINT. `reason` is the name of the signal."""

    reason = ""

    def listen(self) -> None:
        """Handle the signals. A second one ends the process at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop_or_exit, number)

    def _stop_or_exit(self, number: signal.Signals) -> None:
        if self.is_set():
            os._exit(1)
        self.reason = number.name
        self.set()


@contextmanager
def logged_run(config: Config, command: str) -> Iterator[StopEvent]:
    """Log to stderr during the block, and yield the event that ends it.

    The first and the last line have the version and the settings, without secrets.
    """
    logs.configure(config.log_level, config.log_format)
    about = {"version": VERSION, "command": command}
    settings, began, stop = describe_settings(config), time.monotonic(), StopEvent()
    log.info("start", extra=logs.fields(**about, settings=settings))
    stop.listen()
    try:
        yield stop
    except BaseException as error:
        stop.reason = stop.reason or type(error).__name__
        raise
    finally:
        uptime = round(time.monotonic() - began, 1)
        about |= {"reason": stop.reason, "uptime_seconds": uptime}
        log.info("stop", extra=logs.fields(**about, settings=settings))


def warn_of_settings(config: Config) -> None:
    """Log what is wrong with settings with which the service starts nevertheless.

    Raises ConfigError for an unusable certificate.
    """
    warnings = find_address_problems(config)
    if signer := signers.configured(config):
        warnings += [
            f"SIGNING_CERTIFICATE_FILE: {found} {REPLACE_CERTIFICATE}"
            for found in find_warnings(signer.certificate, datetime.now(UTC))
        ]
    for warning in warnings:
        log.warning("%s", warning)


@contextmanager
def record_addresses(config: Config) -> Iterator[None]:
    """Keep the addresses of the running service, for other commands, during the block.

    A file of DATA_DIR has them as values of environment variables.
    """
    path = config.data_dir / ADDRESS_FILE
    text = json_codec.dumps(
        {SETTINGS[name].variable: str(getattr(config, name)) for name in ADDRESSES}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if path.read_text() == text:  # No other service has replaced it.
                path.unlink()


def read_running_config() -> Config:
    """Return the configuration of a command, with the addresses of the running service.

    The environment of the command takes precedence.
    """
    environment = {name: value for name, value in os.environ.items() if value}
    return read_config({**_read_addresses(read_config(environment).data_dir), **environment})


def _read_addresses(data_dir: Path) -> Mapping[str, str]:
    try:
        return json_codec.loads((data_dir / ADDRESS_FILE).read_bytes())
    except (OSError, json_codec.NotJson):
        return {}


def with_portal(config: Config) -> Config:
    """Return the configuration, with the sandbox as the portal if none is configured."""
    if config.portal_api_base:
        return config
    base = f"http://127.0.0.1:{config.sandbox_port}"
    addresses = dict.fromkeys(("portal_api_base", "portal_identity_base", "portal_web_base"), base)
    return replace(config, **addresses, **SANDBOX_CLIENT, portal_intermediary=True)


@asynccontextmanager
async def with_postgres(config: Config) -> AsyncIterator[Config]:
    """Yield the configuration with a database, the embedded one if none is configured.

    The embedded one has a generated secret key, so that secrets can be stored without
    configuration.
    """
    if config.database_url:
        yield config
    else:
        async with postgres(config.data_dir / "postgres") as url:
            generated = _load_or_create_key(config.data_dir / "secret-key")
            keys = {
                "secret_key": config.secret_key or generated,
                "secret_key_previous": config.secret_key_previous or generated,
            }
            yield replace(config, database_url=url, **keys)


def _load_or_create_key(path: Path) -> bytes:
    """Return the 32 bytes of a private file, which is created with random ones if missing."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    if not path.exists():
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secrets.token_bytes(SECRET_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # A concurrent command was first.
            os.link(draft, path)
        draft.unlink()
    return path.read_bytes()


async def migrate_database(config: Config) -> list[str]:
    """Bring the database up to date as its owner, and return the names of the applied files.

    Raises OperatorError, also if it is another cell than CELL.
    """
    url = config.database_owner_url or config.database_url
    try:
        applied = await migrate(url, silence=config.database_silence)
        await check_cell(url, config.cell, config.database_silence)
        return applied
    except (*DATABASE_ERRORS, OSError) as error:
        variable = "DATABASE_OWNER_URL" if config.database_owner_url else "DATABASE_URL"
        raise OperatorError(describe_database_error(error, variable, url)) from error


async def check_database(config: Config) -> None:
    """Raise OperatorError if PostgreSQL is not durable, or SECRET_KEY decrypts no stored secret."""
    async with connected_database(config, 1) as database, database.across() as conn:
        unsafe = await sql.unsafe_settings(conn)
        rows = await sql.secret_key_ids(conn)
    if unsafe and config.database_durability == "on":
        raise OperatorError(NOT_DURABLE.format(" and ".join(unsafe)))
    stored = {row["secret_key"] for row in rows}
    known = {version_of_key(key) for key in (config.secret_key, config.secret_key_previous)}
    if stored and not stored & known:
        raise OperatorError(
            f"SECRET_KEY decrypts none of the {sum(row['secrets'] for row in rows)} stored secrets "
            f"(encrypted with the key {', '.join(key.hex() for key in sorted(stored))}). "
            "Set SECRET_KEY to that key, or restore the file secret-key of DATA_DIR."
        )


async def run_command(
    config: Config,
    command: Callable[..., Awaitable[_Result]],
    *arguments: object,
    **options: object,
) -> _Result:
    """Return the result of a command on the configured database, which is migrated."""
    company_id = options.get("company_id")
    async with with_postgres(with_portal(config)) as config:
        await migrate_database(config)
        async with connected_database(config, 2) as database:
            with acting_as("command"):
                if isinstance(company_id, int):
                    await require_company(database, company_id)
                return await command(config, database, *arguments, **options)


def run_action(action: Callable[..., object], options: JsonMapping) -> None:
    """Run a function, or a coroutine function on the database, whose result is printed as JSON."""
    if not inspect.iscoroutinefunction(action):
        action(**options)
        return
    result = run(run_command(read_running_config(), action, **options))
    if result is not None:
        print_json(result)
