"""The command line, to which each module of commands adds its own."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service import json_codec
from service.json_types import JsonMapping
from service.version import VERSION

#: Runs a command with its arguments by name. A coroutine function runs on the database.
Action = Callable[..., object]
#: Command -> its arguments with the options of add_argument, in which those of `shared` are
#: defaults. Of the arguments in `one of`, one must be given.
_ARGUMENTS = json_codec.load_data(__file__)


class CommandLine:
    def __init__(self, default: Action) -> None:
        """Create a command line that runs `default` without a command."""
        self.parser = argparse.ArgumentParser(prog="run.py", description="The e-invoicing service.")
        self.parser.add_argument(
            "--version", action="version", version=VERSION, help="print the version and exit"
        )
        self.parser.set_defaults(command=default)
        self.commands = self.parser.add_subparsers(metavar="COMMAND")

    def add(self, name: str, action: Action) -> argparse.ArgumentParser:
        """Add a command with its arguments, and return its parser.

        The docstring of its action describes it. Help lists the first sentence.
        """
        description = " ".join((action.__doc__ or "").split())
        summary = description.partition(". ")[0].removesuffix(".")
        parser = self.commands.add_parser(name, help=summary, description=description)
        parser.set_defaults(command=action)
        _add_arguments(parser, _ARGUMENTS.get(name, {}))
        return parser


def _add_arguments(parser: Any, arguments: JsonMapping) -> None:
    """Add arguments to a parser, or to a group of one."""
    for name, given in arguments.items():
        if name == "one of":
            _add_arguments(parser.add_mutually_exclusive_group(required=True), given)
            continue
        options = {**_ARGUMENTS["shared"].get(name, {}), **given}
        if "type" in options:
            options["type"] = _TYPES[options["type"]]
        parser.add_argument(name, **options)


def print_json(result: object) -> None:
    """Print a result as one JSON object on a line, with instants as the API writes them."""
    print(json.dumps(result, default=lambda at: at.isoformat(timespec="milliseconds")))


def _read_note(text: str) -> str:
    """Return a text that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it must not be blank")
    return text


_TYPES = {"int": int, "file": Path, "note": _read_note}
