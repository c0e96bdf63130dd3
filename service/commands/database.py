"""Migrations and named statements from the command line."""

import argparse
import os
import sys
from collections.abc import Mapping

from service.commands.bootstrap import migrate_database, run, with_postgres
from service.commands.command_line import CommandLine
from service.config import Config, read_config
from service.db.statements import sql


def register(line: CommandLine) -> None:
    """Add the commands."""
    line.add(
        "migrate",
        _migrate,
        "Apply new migrations, each once, and print their names. `serve` does this too.",
    )
    parser = line.add("sql", _print_statement, "Print a statement of `sql/queries/`, for psql.")
    parser.add_argument("statement", metavar="NAME")


def _migrate(options: argparse.Namespace) -> None:
    for name in run(_apply()) or ["nothing to apply"]:
        print(name)


async def _apply() -> list[str]:
    async with with_postgres(read_migration_config(os.environ)) as config:
        return await migrate_database(config)


def read_migration_config(variables: Mapping[str, str]) -> Config:
    """Read the settings without the portal, whose secret a migration does not need."""
    return read_config({**variables, "PORTAL_API_BASE": ""})


def _print_statement(options: argparse.Namespace) -> None:
    name = options.statement
    if name not in sql.by_name:
        sys.exit(f"There is no statement {name}. There are: {', '.join(sorted(sql.by_name))}")
    print(sql.by_name[name].text)
