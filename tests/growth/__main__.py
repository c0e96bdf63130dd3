"""`make growth`: measure every door, and exit with 1 if the time of one grows too much.

make growth ARGS="--list"           # names of doors, without measuring them
make growth ARGS="--only TEXT"      # doors whose name contains TEXT; may be repeated
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Sequence

from tests.growth.direct import list_direct_doors
from tests.growth.door import Door
from tests.growth.installation import Installation, open_installation
from tests.growth.judge import MOST_SECONDS, START_SECONDS, Verdict, judge
from tests.growth.operations import list_operation_doors
from tests.growth.pages import list_page_doors
from tests.growth.sandbox import list_sandbox_doors


def main() -> int:
    """Measure the selected doors and print the results. Return the exit code."""
    options = _parser().parse_args()
    return asyncio.run(_run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make growth", description="Measure how processor time grows with the input."
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="doors whose name contains TEXT"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the doors")
    return parser


def list_doors(installation: Installation) -> Iterator[Door]:
    yield from list_page_doors(installation)
    yield from list_direct_doors()
    yield from list_operation_doors(installation)
    yield from list_sandbox_doors(installation)


async def _run(options: argparse.Namespace) -> int:
    began = time.monotonic()
    async with open_installation() as installation:
        doors = [
            door
            for door in list_doors(installation)
            if any(text in door.name for text in options.only or [""])
        ]
        if options.list:
            print("\n".join(door.name for door in doors))
            return 0
        verdicts: list[Verdict] = []
        for door in doors:
            installation.service.find_backends()
            verdicts.append(judge(door.name, door.cost, door.limit))
            if verdicts[-1].failure:
                print(_describe(verdicts[-1]), flush=True)
    _print_summary(verdicts, time.monotonic() - began)
    return 1 if any(verdict.failure for verdict in verdicts) else 0


def _describe(verdict: Verdict) -> str:
    """Return a door's name, why it fails, and its times by size."""
    times = "  ".join(
        f"{size / 1000:,.1f} kB: {seconds * 1000:,.0f} ms"
        for size, seconds in sorted(verdict.times.items())
    )
    return f"{verdict.name} {verdict.failure}\n    {times}"


def _print_summary(verdicts: Sequence[Verdict], seconds: float) -> None:
    dear = sorted(verdicts, key=lambda verdict: verdict.most, reverse=True)[:10]
    print(f"\nThe longest times (at most {MOST_SECONDS * 1000:.0f} ms allowed):")
    for verdict in dear:
        print(_describe(verdict))
    measured = sum(verdict.most >= START_SECONDS for verdict in verdicts)
    failed = sum(bool(verdict.failure) for verdict in verdicts)
    print(
        f"{len(verdicts)} doors, {measured} of which cost {START_SECONDS * 1000:.0f} ms; "
        f"{failed} fail; {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
