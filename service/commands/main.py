"""The commands of the service, and the messages of their errors."""

import logging
import os
import sys
from typing import NoReturn

import asyncpg

from service import json_codec, logs
from service.commands import (
    certificates,
    check_portal,
    codes,
    companies,
    database,
    integrations,
    people,
    reconcile,
    serve,
)
from service.commands.bootstrap import run_action
from service.commands.command_line import CommandLine
from service.commands.operator_errors import DATABASE_ERRORS, describe_database_error, first_line
from service.embedded_postgres.lifecycle import EmbeddedError
from service.errors import CONSTRAINTS, ApiError, OperatorError
from service.json_types import JsonObject

#: The modules with commands, in the order of the help.
MODULES = (
    serve,
    database,
    companies,
    integrations,
    people,
    certificates,
    check_portal,
    reconcile,
    codes,
)
#: Errors whose text is the message.
EXPECTED_ERRORS = (OperatorError, EmbeddedError, ApiError, OSError)

log = logging.getLogger(__name__)

#: Errors about a value, after which the database is usable.
VALUE_ERRORS = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)


def main(arguments: list[str]) -> None:
    """Run one command. Print an expected error and exit with code 1."""
    options = vars(create_command_line().parser.parse_args(arguments))
    action = options.pop("command")
    try:
        _reject_invalid_text(options)
        run_action(action, options)
    except BrokenPipeError:
        sys.exit(1)  # The reader of the output has ended.
    except KeyboardInterrupt:
        sys.exit(130)
    except VALUE_ERRORS as error:
        _fail(_describe_value_error(error))
    except DATABASE_ERRORS as error:
        _fail(describe_database_error(error, "DATABASE_URL", os.environ.get("DATABASE_URL", "")))
    except EXPECTED_ERRORS as error:
        _fail(f"{error}")


def _fail(message: str) -> NoReturn:
    """Print the message of an error, or log it where the log is JSON, and exit with code 1."""
    if not logs.is_json():
        sys.exit(message)
    log.critical(message)
    sys.exit(1)


def create_command_line() -> CommandLine:
    line = CommandLine(default=serve.start)
    for module in MODULES:
        module.register(line)
    return line


def _reject_invalid_text(options: JsonObject) -> None:
    """Raise OperatorError for a text that is not UTF-8, which PostgreSQL cannot store."""
    for name, value in options.items():
        texts = value if isinstance(value, list) else [value]
        if not all(json_codec.is_valid_text(text) for text in texts if isinstance(text, str)):
            raise OperatorError(f"--{name.replace('_', '-')} must be UTF-8 text.")


def _describe_value_error(error: asyncpg.PostgresError) -> str:
    create_error = CONSTRAINTS.get(getattr(error, "constraint_name", None) or "")
    if create_error:
        return create_error().message
    return f"The database does not accept a value: {first_line(error)}."
