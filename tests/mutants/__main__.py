"""`make mutants`: run every mutant against its tests, and exit with 1 if one survives.

make mutants ARGS="--list"          # names, files and tests, without running them
make mutants ARGS="--only NAME"     # one mutant, or all whose name contains NAME; may be repeated
make mutants ARGS="--jobs 3"        # mutants at a time
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from service.embedded_postgres.lifecycle import postgres

from .cases import MUTANTS, Mutant
from .runner import NotApplicable, Result, check, prepared


def main() -> int:
    """Run the selected mutants and print the results. Return the exit code."""
    options = _parser().parse_args()
    mutants = [mutant for mutant in MUTANTS if _is_selected(mutant, options.only)]
    if not mutants:
        print(f"No mutant has a name with {' or '.join(options.only)}.")
        return 1
    if options.list:
        return _list(mutants)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        results = asyncio.run(_run(mutants, Path(scratch), options))
    return _summary(mutants, results, time.monotonic() - began)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make mutants", description="Check that tests notice deliberate defects."
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="mutants whose name contains NAME",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the mutants and check that they apply"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument(
        "--limit", type=float, default=180, help="seconds for the tests of one mutant (180)"
    )
    parser.add_argument(
        "--output", action="store_true", help="print the output of pytest for each mutant"
    )
    return parser


def _is_selected(mutant: Mutant, names: Sequence[str]) -> bool:
    return not names or any(name in mutant.name for name in names)


def _list(mutants: Sequence[Mutant]) -> int:
    """Print the mutants. Return 1 if one of them does not apply to the current code."""
    code = 0
    for mutant in mutants:
        print(f"{mutant.name}\n    {mutant.file}\n    {mutant.test}")
        try:
            check(mutant)
        except NotApplicable as why:
            print(f"    {why}")
            code = 1
    return code


async def _run(
    mutants: Sequence[Mutant], scratch: Path, options: argparse.Namespace
) -> list[Result]:
    async with (
        _database(scratch) as database_url,
        prepared(scratch, database_url, options.jobs, options.limit) as runner,
    ):
        if failure := await runner.baseline(mutants):
            print(f"{failure.line()}\n{failure.output}")
            return [failure]
        results = []
        async for result in runner.run(mutants):
            print(result.line(), flush=True)
            if options.output or not result.is_noticed:
                print(result.output, flush=True)
            results.append(result)
        return results


@asynccontextmanager
async def _database(scratch: Path) -> AsyncIterator[str]:
    """Return the address of the shared PostgreSQL: DATABASE_URL, or an embedded server."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    async with postgres(scratch / "postgres") as url:
        conn = await asyncpg.connect(url)
        # Tests of mutants do not have to survive a power failure.
        await conn.execute("alter system set fsync = off")
        await conn.execute("select pg_reload_conf()")
        await conn.close()
        yield url


def _summary(mutants: Sequence[Mutant], results: Sequence[Result], seconds: float) -> int:
    noticed = sum(result.is_noticed for result in results)
    print(f"{noticed} of {len(mutants)} mutants were noticed, in {seconds:.0f} s.")
    return 0 if noticed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
