"""The commands of the service, and the messages of their errors."""

import argparse
import socket
import sys

import asyncpg

from service import json_codec
from service.commands import (
    audit,
    certificates,
    codes,
    companies,
    database,
    demo,
    docs,
    integrations,
    people,
    reconcile,
    sandbox,
    secrets,
    serve,
)
from service.commands.command_line import CommandLine
from service.config import ConfigError
from service.db.migrations import SchemaError
from service.embedded_postgres.lifecycle import EmbeddedError
from service.errors import CONSTRAINTS, ApiError

#: The modules with commands, in the order of the help.
MODULES = (
    serve,
    sandbox,
    database,
    demo,
    companies,
    integrations,
    people,
    certificates,
    audit,
    secrets,
    reconcile,
    codes,
    docs,
)
#: Errors whose text is the message.
EXPECTED_ERRORS = (
    ConfigError,
    EmbeddedError,
    serve.ServeError,
    SchemaError,
    companies.CommandError,
    ApiError,
    OSError,
)
#: Errors about a value, after which the database is usable.
VALUE_ERRORS = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)
DATABASE_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ConnectionError,
    socket.gaierror,
    TimeoutError,
)


def main(arguments: list[str]) -> None:
    """Run one command. Print an expected error and exit with code 1."""
    options = create_command_line().parser.parse_args(arguments)
    try:
        _reject_invalid_text(options)
        options.command(options)
    except BrokenPipeError:
        sys.exit(1)  # The reader of the output has ended.
    except VALUE_ERRORS as error:
        sys.exit(_describe_value_error(error))
    except DATABASE_ERRORS as error:
        sys.exit(f"The database of DATABASE_URL cannot be used: {_first_line(error)}")
    except EXPECTED_ERRORS as error:
        sys.exit(f"{error}")


def create_command_line() -> CommandLine:
    """Return the command line with all commands."""
    line = CommandLine(default=serve.serve_default)
    for module in MODULES:
        module.register(line)
    return line


def _reject_invalid_text(options: argparse.Namespace) -> None:
    """Raise CommandError for a text that is not UTF-8, which PostgreSQL cannot store."""
    for name, value in vars(options).items():
        if isinstance(value, str) and not json_codec.is_valid_text(value):
            raise companies.CommandError(f"--{name.replace('_', '-')} must be UTF-8 text.")


def _describe_value_error(error: asyncpg.PostgresError) -> str:
    """Return the message of a violated constraint or an invalid value."""
    create_error = CONSTRAINTS.get(getattr(error, "constraint_name", None) or "")
    if create_error:
        return create_error().message
    return f"The database does not accept a value: {_first_line(error)}."


def _first_line(error: Exception) -> str:
    """Return the message of PostgreSQL without its details and hints."""
    return str(error).partition("\n")[0] or type(error).__name__
