"""Migrations and named statements from the command line."""

import os
import sys
from collections.abc import Mapping

from service.commands.bootstrap import migrate_database, run, with_postgres
from service.commands.command_line import CommandLine
from service.config import SETTINGS, Config, read_config
from service.db.statements import sql

MIGRATION_SETTINGS = ("database_url", "database_owner_url", "database_silence", "data_dir", "cell")


def register(line: CommandLine) -> None:
    line.add("migrate", _migrate)
    line.add("sql", _print_statement)


def _migrate() -> None:
    """Apply new migrations, each once, and print their names.

    `serve` does this too. Reads only the settings of the database.
    """
    for name in run(_apply()) or ["nothing to apply"]:
        print(name)


async def _apply() -> list[str]:
    async with with_postgres(_read_migration_config(os.environ)) as config:
        return await migrate_database(config)


def _read_migration_config(variables: Mapping[str, str]) -> Config:
    """Read the settings of a migration. Files of other secrets may be missing."""
    own = map(SETTINGS.__getitem__, MIGRATION_SETTINGS)
    names = {name for setting in own for name in (setting.variable, setting.file_variable)}
    return read_config({name: text for name, text in variables.items() if name in names})


def _print_statement(statement: str) -> None:
    """Print a statement, or a function's call, for psql."""
    if statement not in sql.by_name:
        known = ", ".join(sorted(sql.by_name))
        sys.exit(f"There is no statement {statement}. There are: {known}")
    print(sql.by_name[statement].text)
