#!/usr/bin/env python3
"""Compare this service with two peers and with COPY on the same data.

    .venv/bin/python bench/compare.py [--seconds S] [--rounds N] [--connections N] [--companies N]
                                      [--zipf] [--invoices N] [--exported N]
                                      [--only OPERATIONS] [--targets TARGETS] [--against COMMIT]
                                      [--growth] [--largest N] [--write]

All targets use one PostgreSQL. Companies send requests in turn: each request is of another company
than the one before it. With `--zipf` the companies of the requests have a Zipf distribution with
the exponent 1 and are the same for each target. Each create has a code of its own. A round starts
each target, measures its operations and stops it. The figures are medians of the rounds. Tables are
vacuumed before each target and not meanwhile, so that the work of autovacuum does not fall into the
figures of another target. A response that is not a success ends the run with code 1. `--write`
writes the tables into docs/performance.md.

`--growth` adds get, list and create of 20 companies in turn, 1,000 by Zipf and 10,000 in turn, and
lists of companies with 1,000 and `--largest` invoices; `--only growth` measures nothing else.

`--against` measures the service of another commit too, with its own migrations on a database of its
own with the same data. It runs with the packages of this environment.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path

import compare_report as report
import peer_programs
from benchmark import (
    ROOT,
    Service,
    make_parser,
    prepare_service,
    print_table,
    provide_large_server,
    run,
)
from compare_checks import compare_responses, read_responses
from compare_growth import measure_growth
from compare_targets import (
    AGAINST,
    BY_ZIPF,
    COPY,
    EXPORT,
    FASTAPI,
    FASTIFY,
    GET,
    IN_TURN,
    LIST,
    SERVICE,
    SUBMIT,
    TARGETS,
    Figures,
    Setting,
    choose_process,
    fill_peers,
    measure,
    seed,
    stop_autovacuum,
    take_median,
)
from cpu import find_postmaster
from programs import find_missing, run_program
from wrk import CREATE

#: The operations in the order in which they are measured. The last ones leave background work.
OPERATIONS = (GET, LIST, EXPORT, CREATE, SUBMIT)
GROWTH = "growth"
PEERS = (FASTIFY, FASTAPI)
EXTRACT_SECONDS = 60
#: The programs that a target or an operation needs.
PROGRAMS = {FASTIFY: peer_programs.NODE_PROGRAMS, COPY: ("psql",)}

#: Operation -> target -> the figures of each round.
Rounds = dict[str, dict[str, list[Figures]]]


async def main(options: argparse.Namespace) -> None:
    """Measure and print or write the tables."""
    if messages := find_missing(["wrk"]):
        sys.exit("\n".join(messages))
    targets = list(_choose_targets(options))
    if FASTIFY in targets:
        await peer_programs.install_fastify()
    if FASTAPI in targets:
        await peer_programs.install_fastapi()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(provide_large_server())
        prepare = partial(prepare_service, sandbox=SUBMIT in options.only, server=server)
        service = await stack.enter_async_context(prepare())
        setting = await _prepare(service, options, targets)
        settings = dict.fromkeys(targets, setting)
        if AGAINST in targets:
            root = await _extract(options.against, service.home / AGAINST)
            other = await stack.enter_async_context(prepare(root=root))
            settings[AGAINST] = await _prepare(other, options, [])
        rounds: Rounds = {}
        for number in range(1, options.rounds + 1):
            await _run_round(settings, number, options.only, rounds)
        figures = {
            operation: {target: take_median(measured) for target, measured in found.items()}
            for operation, found in rounds.items()
        }
        growth = []
        if GROWTH in options.only:
            growth = await measure_growth(setting, options.largest, options.rounds)
        facts = await report.describe_run(setting, options.rounds)
    tables = list(report.make_tables(figures, growth))
    for table in tables:
        print_table(table.title, table.columns, table.rows)
    print(f"\n{facts}")
    if options.write:
        report.replace_section(facts, tables)


async def _extract(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a new folder, and return it."""
    archive = folder.with_suffix(".tar")
    command = ["git", "-C", str(ROOT), "archive", f"--output={archive}", commit]
    await run_program(command, EXTRACT_SECONDS)
    folder.mkdir()
    await run_program(["tar", "-xf", str(archive), "-C", str(folder)], EXTRACT_SECONDS)
    return folder


def _choose_targets(options: argparse.Namespace) -> Iterator[str]:
    """Yield the targets whose programs are installed, and name what is left out."""
    for target in options.targets:
        if not set(_select_operations(target)).intersection(options.only):
            continue
        messages = find_missing(PROGRAMS.get(target, ()))
        if messages:
            print(f"Without {target}: {' '.join(messages)}", flush=True)
        else:
            yield target


async def _prepare(service: Service, options: argparse.Namespace, targets: list[str]) -> Setting:
    """Create the data, and check that the peers give the same responses as the service."""
    postmaster = await find_postmaster(service.url)
    choice = BY_ZIPF if options.zipf else IN_TURN
    data = await seed(service, options.companies, options.invoices, options.exported, choice)
    setting = Setting(service, data, postmaster, options.seconds, options.connections)
    peers = [target for target in targets if target in PEERS]
    if peers:
        companies = [each.company for each in (*data.companies, data.large)]
        await fill_peers(service, companies)
    await service.vacuum()
    await stop_autovacuum(service)
    if peers:
        print(f"Checking the responses of {' and '.join(peers)} …", flush=True)
        async with choose_process(setting, SERVICE) as process:
            expected = await read_responses(process.base, data)
        for peer in peers:
            async with choose_process(setting, peer) as process:
                compare_responses(peer, await read_responses(process.base, data), expected)
    return setting


async def _run_round(
    settings: Mapping[str, Setting], number: int, operations: Sequence[str], rounds: Rounds
) -> None:
    """Measure the operations of each target once. Every second round has the opposite order."""
    for target, setting in list(settings.items())[:: 1 if number % 2 else -1]:
        print(f"Round {number}: {target} …", flush=True)
        await setting.service.vacuum()
        chosen = [name for name in _select_operations(target) if name in operations]
        running = nullcontext() if target == COPY else choose_process(setting, target)
        async with running as process:
            for operation in chosen:
                figures = await measure(setting, operation, process)
                rounds.setdefault(operation, {}).setdefault(target, []).append(figures)


def _select_operations(target: str) -> Iterator[str]:
    """Yield the operations of a target in their order."""
    for operation in OPERATIONS:
        is_own = operation != SUBMIT or target in (SERVICE, AGAINST)
        if target == COPY:
            is_own = operation == EXPORT
        if is_own:
            yield operation


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    numbers = {"companies": 20, "invoices": 1000, "exported": 100_000, "largest": 1_000_000}
    parser = make_parser(__doc__, seconds=4, rounds=3, connections=32, **numbers)
    every = ",".join(OPERATIONS)
    parser.add_argument("--only", default=every, help=f"some of {every},{GROWTH}")
    known = ",".join(TARGETS)
    parser.add_argument("--targets", help=f"some of {known}; all, or {SERVICE} with --against")
    parser.add_argument("--zipf", action="store_true", help="choose companies by Zipf, not in turn")
    parser.add_argument("--against", metavar="COMMIT", help="measure the service of a commit too")
    parser.add_argument("--growth", action="store_true", help="measure growth too, for minutes")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    options.only = _split(parser, options.only, (*OPERATIONS, GROWTH))
    chosen = options.targets or (SERVICE if options.against else known)
    further = AGAINST if options.against else COPY
    options.targets = [*_split(parser, chosen, TARGETS), further]
    if options.growth and GROWTH not in options.only:
        options.only.append(GROWTH)
    return options


def _split(parser: argparse.ArgumentParser, text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return names


if __name__ == "__main__":
    run(main(parse_options()))
