"""What every command stands on: a configuration, a PostgreSQL that is migrated, and an event loop."""

import asyncio
import gc
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import uvloop

from service.db import Database, connected_pool, migrate
from service.embedded import postgres

LOG_FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"


def run(work):
    """Runs a coroutine on the fast event loop and gives its result."""
    gc.freeze()  # what is loaded by now stays: no collection has to look through it again
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def start_logging(config):
    logging.basicConfig(level=config.log_level, format=LOG_FORMAT)


@asynccontextmanager
async def with_postgres(config):
    """The Config with an address for the database: the configured one, or the embedded server's while it runs."""
    if config.database_url:
        yield config
    else:
        async with postgres(config.data_dir / "postgres") as url:
            yield replace(config, database_url=url)


@asynccontextmanager
async def with_database(config):
    """(Config, Database) on a migrated database, for a command that needs no more."""
    async with with_postgres(config) as config:
        await migrate(config.database_owner_url or config.database_url)
        async with connected_pool(config.database_url, 2) as pool:
            yield config, Database(pool)
