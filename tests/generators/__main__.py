"""`make generators`: run generators, linters and generated clients, and exit with 1 after a fault.

Without --url, a service and its sandbox are started. The packages are installed into a temporary
directory.
"""

import argparse
import asyncio
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from .checks import CHECKS
from .service import start_service
from .tools import END, Fault, Workspace, install_tools, save_description


def main() -> int:
    """Run the checks and return the exit code."""
    options = _parser().parse_args()
    if options.url and not options.key:
        print("--url needs --key: the key of a company whose portal is a sandbox.")
        return 2
    if options.keep and Path(options.keep).exists():
        print(f"{options.keep} exists already.")
        return 2
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    chosen = [check for check in CHECKS if not options.only or options.only in check.name]
    if not chosen:
        print(f"No check has a name with {options.only}.")
        return 2
    async with _prepare(options) as workspace:
        steps = [("install", install_tools), ("fetch the description", save_description)]
        for name, step in steps:
            if not await _report(name, step(workspace)):
                return 1
        results = [await _report(check.name, check.run(workspace)) for check in chosen]
    faults = results.count(False)
    print(f"{faults} of {len(results)} checks failed." if faults else "All checks passed.")
    return 1 if faults else 0


@asynccontextmanager
async def _prepare(options: argparse.Namespace) -> AsyncIterator[Workspace]:
    """Yield the directory of the run, with a running service."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="generators-")))
        url, key = options.url, options.key
        if not url:
            url, key = await stack.enter_async_context(start_service(home / "service"))
        if options.keep:
            home = Path(options.keep).resolve()
            home.mkdir(parents=True)
        yield Workspace(home, url.rstrip("/"), key)


async def _report(name: str, step: Awaitable[None]) -> bool:
    """Run a step, print its name, its result and its time, and return whether it succeeded."""
    began, fault = time.monotonic(), None
    try:
        await step
    except Fault as error:
        fault = str(error)
    result = "FAILED" if fault else "ok"
    print(f"{name:45} {result:6} {time.monotonic() - began:6.1f} s", flush=True)
    if fault:
        print(textwrap.indent(fault[-END:], "    "), flush=True)
    return not fault


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make generators",
        description="Run client generators and linters on the OpenAPI description.",
    )
    parser.add_argument(
        "--url", help="base address of a running service; by default one is started"
    )
    parser.add_argument("--key", help="key of a company of that service")
    parser.add_argument("--only", help="run checks whose name contains this text")
    parser.add_argument("--keep", help="new directory in which the generated clients are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
