"""The move of a company to another cell."""

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from service import failpoints
from service.commands.bootstrap import migrate_database, run
from service.commands.cell_registry import claim_tin, move_tin
from service.commands.cell_routes import check_routes, reload_proxy, write_routes
from service.commands.command_line import CommandLine, add_company_option, print_json
from service.commands.operator_errors import (
    DATABASE_ERRORS,
    OperatorError,
    describe_database_error,
)
from service.config import Config, read_config
from service.db.company_moves import MOVED, Copied, Move, MoveError, Place, open_place
from service.db.statements import sql
from service.http.api_keys import CACHE_SECONDS

DEFAULT_PATIENCE, MOST_PATIENCE = 600, 86400  # seconds
HELD_STILL = (
    "The company is still held. Run the command again to go on, or with --cancel to make the "
    "company active in this cell again."
)


@dataclass(frozen=True, slots=True)
class Route:
    """Where the proxy's routes are written, and the command that makes the proxy read them."""

    file: Path | None
    reload: str | None


def register(line: CommandLine) -> None:
    """Add the command."""
    parser = line.add(
        "move-company",
        _move_company,
        "Move a company to another cell. Its changes get a 503 meanwhile. Can be repeated after "
        "any failure. docs/scaling.md describes it.",
    )
    add_company_option(parser)
    parser.add_argument(
        "--to", required=True, metavar="URL", help="the owner's login of the other cell's database"
    )
    parser.add_argument(
        "--routes", type=Path, metavar="FILE", help="the include file of nginx with moved keys"
    )
    parser.add_argument(
        "--reload", metavar="COMMAND", help="makes nginx read the routes, such as nginx -s reload"
    )
    parser.add_argument(
        "--patience",
        type=_read_seconds,
        default=DEFAULT_PATIENCE,
        metavar="SECONDS",
        help="how long to wait for work that is under way",
    )
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--cancel", action="store_true", help="give up, as long as the company has not left"
    )
    ends.add_argument(
        "--remove", action="store_true", help="delete the old rows of a company that has left"
    )


def _read_seconds(text: str) -> int:
    """Return a number of seconds. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= MOST_PATIENCE):
        raise argparse.ArgumentTypeError(f"must be a number of seconds, 1 to {MOST_PATIENCE}")
    return int(text)


def _move_company(options: argparse.Namespace) -> None:
    config = read_config()
    if not config.database_url:
        raise OperatorError("DATABASE_URL is missing: the embedded PostgreSQL is no cell.")
    if options.reload and not options.routes:
        raise OperatorError("--reload needs --routes.")
    logging.basicConfig(level=config.log_level, format="%(message)s", stream=sys.stderr)
    route = Route(options.routes, options.reload)
    print_json(run(_run_move(config, options, route)))


async def _run_move(config: Config, options: argparse.Namespace, route: Route) -> dict[str, Any]:
    """Move the company, or cancel the move, or remove the old rows. Raises OperatorError."""
    patience = timedelta(seconds=options.patience)
    try:
        async with _open_move(config, options.company, options.to, patience) as move:
            if options.cancel:
                await move.begin()
                await move.cancel()
                return {"company_id": options.company, "cell": move.source.cell}
            if options.remove:
                return {"company_id": options.company, "deleted": await move.remove()}
            return await move_company(config, move, route)
    except MoveError as error:
        raise OperatorError(str(error)) from None


@asynccontextmanager
async def _open_move(
    config: Config, company_id: int, url: str, patience: timedelta
) -> AsyncIterator[Move]:
    """Connect to both databases. Raises OperatorError."""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise OperatorError("--to must have the form postgresql://user:password@host:port/database")
    await migrate_database(config)
    own = config.database_owner_url or config.database_url
    async with (
        _open(own, "DATABASE_OWNER_URL", company_id) as source,
        _open(url, "--to", company_id) as target,
    ):
        yield Move(source, target, patience)


@asynccontextmanager
async def _open(url: str, name: str, company_id: int) -> AsyncIterator[Place]:
    """Connect to one database. Raises OperatorError if that fails."""
    async with AsyncExitStack() as stack:
        try:
            place = await stack.enter_async_context(open_place(url, company_id))
        except DATABASE_ERRORS as error:
            raise OperatorError(describe_database_error(error, name, url)) from error
        yield place


async def move_company(config: Config, move: Move, route: Route) -> dict[str, Any]:
    """Move the company from where an earlier run ended.

    Return {company_id, cell, tables}. `tables` has the number of rows of each table, and is empty
    if an earlier run has copied them. Raises MoveError and OperatorError.
    """
    standing = await move.begin()
    copied: dict[str, Copied] = {}
    if standing.state != MOVED:
        check_routes(route.file, route.reload)
        claim_tin(config.cell_registry, standing.verified_tin, move.source.cell)
        copied = await _leave(move)
    await _arrive(config, move, route)
    counts = {name: table.rows for name, table in copied.items()}
    return {"company_id": move.company_id, "cell": move.target.cell, "tables": counts}


async def _leave(move: Move) -> dict[str, Copied]:
    """Copy the company to the other cell. After an error or Ctrl-C it is active here again."""
    try:
        await move.drain()
        return await move.copy()
    except BaseException:
        try:
            await move.cancel()
        except (MoveError, asyncio.CancelledError, *DATABASE_ERRORS):
            print(HELD_STILL, file=sys.stderr)
        raise


async def _arrive(config: Config, move: Move, route: Route) -> None:
    """Route the company's requests to the other cell, and make it active there.

    A process that has missed the notification serves reads for as long as it caches a key.
    """
    there = await move.check_arrival()
    keys = await sql.move_keys(move.source.conn, company_id=move.company_id)
    if route.file:
        write_routes(route.file, [row["key_id"] for row in keys], move.target.cell)
    if route.reload:
        await asyncio.to_thread(reload_proxy, route.reload)
    move_tin(config.cell_registry, (await move.source.standing()).verified_tin, move.target.cell)
    failpoints.reach("move_routed")
    if not there.is_active:
        await asyncio.sleep(CACHE_SECONDS)
    await move.target.activate()
    failpoints.reach("move_released")
