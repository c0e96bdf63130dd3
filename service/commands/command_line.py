"""The command line, to which each module of commands adds its own."""

import argparse
import json
from collections.abc import Callable

from service.version import VERSION

#: Runs a command with its arguments by name. A coroutine function runs on the database.
Action = Callable[..., object]


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
        """Add a command, which the docstring of its action describes, and return its parser.

        Help lists the first sentence.
        """
        description = " ".join((action.__doc__ or "").split())
        summary = description.partition(". ")[0].removesuffix(".")
        parser = self.commands.add_parser(name, help=summary, description=description)
        parser.set_defaults(command=action)
        return parser


def add_company_option(
    parser: argparse.ArgumentParser, text: str = "the id of the company", required: bool = True
) -> None:
    parser.add_argument(
        "--company", dest="company_id", type=int, required=required, metavar="ID", help=text
    )


def print_json(result: object) -> None:
    """Print a result as one JSON object on a line, with instants as the API writes them."""
    print(json.dumps(result, default=lambda at: at.isoformat(timespec="milliseconds")))


def add_note_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the required option --note, a text that is not blank."""

    def read(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError("it must not be blank")
        return text

    parser.add_argument("--note", required=True, metavar="TEXT", type=read, help=purpose)
