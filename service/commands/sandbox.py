"""The portal sandbox as a command."""

import os
import threading

from service.commands.command_line import CommandLine
from service.errors import OperatorError


def register(line: CommandLine) -> None:
    parser = line.add("sandbox", _sandbox)
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="end with the process that started it"
    )


def _sandbox(until_stdin_closes: bool) -> None:
    """Run the portal sandbox alone. docs/sandbox.md describes it."""
    # Imported here because other commands do not need it.
    from service.sandbox.app import run
    from service.sandbox.settings import Settings

    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        settings = Settings.from_env(os.environ)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    run(settings)


def _end_with_stdin() -> None:
    """End this process when the other end of stdin has ended. The sandbox loses nothing.

    It does not read by `sys.stdin`, whose lock would make the end of the interpreter fail.
    """
    while os.read(0, 1024):
        pass
    os._exit(0)
