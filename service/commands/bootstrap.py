"""What every command stands on: a configuration, a PostgreSQL that is migrated, and an event loop."""

import asyncio
import gc
import logging
import os
import resource
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import uvloop

from service.config import SECRET_KEY_BYTES
from service.db.migrations import migrate
from service.db.transactions import Database, acting_as, connected_pool
from service.embedded_postgres.lifecycle import postgres

FILES = 65_536
SANDBOX_CLIENT = {"portal_client_id": "sandbox-client", "portal_client_secret": "sandbox-secret"}
LOG_FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"


def run(work):
    """Runs a coroutine on the fast event loop and gives its result."""
    # The memory holds keys and secrets, and buyers
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _allow_connections()
    gc.freeze()  # what is loaded by now stays: no collection has to look through it again
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _allow_connections():
    """A connection is an open file, of which many systems allow a process a thousand unless it asks for more."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def start_logging(config):
    logging.basicConfig(level=config.log_level, format=LOG_FORMAT)


def with_portal(config):
    """The Config with the sandbox's addresses where no portal is configured."""
    if config.portal_api_base:
        return config
    base = f"http://127.0.0.1:{config.sandbox_port}"
    addresses = dict.fromkeys(("portal_api_base", "portal_identity_base", "portal_web_base"), base)
    return replace(config, **addresses, **SANDBOX_CLIENT, portal_intermediary=True)


@asynccontextmanager
async def with_postgres(config):
    """The Config with an address for the database: the configured one, or the embedded server's while it runs.

    The embedded one has a secret key beside it, so that what needs one works with nothing configured.
    """
    if config.database_url:
        yield config
    else:
        async with postgres(config.data_dir / "postgres") as url:
            kept = _kept_key(config.data_dir / "secret-key")
            keys = {
                "secret_key": config.secret_key or kept,
                "secret_key_previous": config.secret_key_previous or kept,
            }
            yield replace(config, database_url=url, **keys)


def _kept_key(path):
    """The 32 bytes of a file that only its user can read, which is made at the first need of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    if not path.exists():
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secrets.token_bytes(SECRET_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another command was quicker
            os.link(draft, path)
        draft.unlink()
    return path.read_bytes()


@asynccontextmanager
async def with_database(config):
    """(Config, Database) on a migrated database, for a command that needs no more."""
    async with with_postgres(config) as config:
        await migrate(
            config.database_owner_url or config.database_url, silence=config.database_silence
        )
        async with connected_pool(config.database_url, 2, config.database_silence) as pool:
            with acting_as("command"):
                yield config, Database(pool)
