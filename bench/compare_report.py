"""The tables of compare.py: figures, ratios with their goals, and the section of the page."""

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import compare_targets as targets
from benchmark import ROOT
from compare_growth import Growth
from compare_targets import Figures, Setting
from wrk import CREATE

from tests.harness.databases import open_connection

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- compare.py: begin -->", "<!-- compare.py: end -->"
TITLES = {
    targets.SERVICE: "this service",
    targets.AGAINST: "the other commit",
    targets.FASTIFY: "Fastify, node-postgres",
    targets.FASTAPI: "FastAPI, Pydantic, SQLAlchemy",
    targets.COPY: "psql, COPY",
}
MEASURES = ("per second", "p50 ms", "p99 ms", "p99/p50", "CPU µs", "PostgreSQL CPU µs", "MB")
NONE = "–"

#: Operation -> target -> figures.
AllFigures = Mapping[str, Mapping[str, Figures]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. The columns after the first are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured value and its limit, which is the least or the largest good value."""

    title: str
    value: float
    limit: float
    is_least: bool = False

    @property
    def row(self) -> tuple[str, ...]:
        """The row of the table."""
        is_met = self.value >= self.limit if self.is_least else self.value <= self.limit
        goal = f"{'≥' if self.is_least else '≤'} {self.limit:g}"
        return (self.title, _format(self.value), goal, "yes" if is_met else "no")


#: (operation, target, the least ratio of the requests per second)
RATES = (
    (CREATE, targets.FASTIFY, 0.85),
    (targets.LIST, targets.FASTIFY, 2.0),
    (targets.GET, targets.FASTIFY, 1.0),
    (CREATE, targets.FASTAPI, 5.5),
    (targets.LIST, targets.FASTAPI, 9.5),
    (targets.GET, targets.FASTAPI, 7),
)
MAX_CREATE_POSTGRES_CPU = 1.2  # for each microsecond of PostgreSQL with Fastify
MAX_SPREAD = 3  # p99/p50
MAX_EXPORT_TIME = 1.3  # for each second of COPY
MAX_EXPORT_MB = 100
LEAST_RATE = 0.9  # requests per second of many companies, for one of few
#: CPU time of the service and of PostgreSQL: in a large company, for one microsecond in a small
#: one, and the milliseconds for each further 1,000 matches.
MOST_COST, MOST_COST_OF_MATCHES = 1.1, 0.15
MOST_COST_OF_COMMIT = 1.05  # for one microsecond of the other commit


def make_tables(figures: AllFigures, growth: Sequence[Growth]) -> Iterator[Table]:
    """Yield the tables."""
    for operation, found in figures.items():
        unit = "for each invoice" if operation == targets.EXPORT else "for each request"
        rows = [(TITLES[target], *_describe(each)) for target, each in found.items()]
        yield Table(f"{operation}, {unit}", ("", *MEASURES), rows)
    if growth:
        columns = ("", *MEASURES, "per second, ratio", "CPU, ratio")
        yield Table("Growth of this service", columns, list(_describe_growth(growth)))
    goals = [goal.row for goal in (*_find_goals(figures), *_find_growth_goals(growth))]
    if goals:
        yield Table("Ratios", ("", "measured", "goal", "met"), goals)


def _describe(each: Figures) -> tuple[str, ...]:
    numbers = (each.rate, each.p50, each.p99, each.spread, each.cpu, each.postgres_cpu, each.memory)
    return tuple(NONE if number is None else _format(number) for number in numbers)


def _format(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _describe_growth(growth: Sequence[Growth]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each size. The ratios are those to the first size."""
    for each in growth:
        first = next(iter(each.figures.values()))
        for size, figures in each.figures.items():
            ratios = (figures.rate / first.rate, figures.all_cpu / first.all_cpu)
            yield (f"{each.operation}, {size}", *_describe(figures), *map(_format, ratios))


def _find_goals(figures: AllFigures) -> Iterator[Goal]:
    """Yield the goals for which there are figures."""
    own = {
        operation: found[targets.SERVICE]
        for operation, found in figures.items()
        if targets.SERVICE in found
    }
    for operation, target, least in RATES:
        if operation in own and target in figures[operation]:
            ratio = own[operation].rate / figures[operation][target].rate
            title = f"{operation}, requests/s against {TITLES[target]}"
            yield Goal(title, ratio, least, is_least=True)
    if CREATE in own and (peer := figures[CREATE].get(targets.FASTIFY)):
        cost = own[CREATE].postgres_cpu / peer.postgres_cpu
        yield Goal("create, PostgreSQL CPU against Fastify", cost, MAX_CREATE_POSTGRES_CPU)
    for operation, each in own.items():
        if other := figures[operation].get(targets.AGAINST):
            for name, cost in {
                "CPU": (each.cpu or 0) / (other.cpu or 1),
                "PostgreSQL CPU": each.postgres_cpu / other.postgres_cpu,
            }.items():
                title = f"{operation}, {name} against {TITLES[targets.AGAINST]}"
                yield Goal(title, cost, MOST_COST_OF_COMMIT)
    if targets.EXPORT in own:
        if targets.COPY in figures[targets.EXPORT]:
            ratio = own[targets.EXPORT].p50 / figures[targets.EXPORT][targets.COPY].p50
            yield Goal("export, time against COPY", ratio, MAX_EXPORT_TIME)
        yield Goal("export, MB", own[targets.EXPORT].memory or 0, MAX_EXPORT_MB)
    for operation, each in own.items():
        if operation != targets.EXPORT:
            yield Goal(f"{operation}, p99/p50", each.spread, MAX_SPREAD)


def _find_growth_goals(growth: Sequence[Growth]) -> Iterator[Goal]:
    """Yield the goals for each size against the first one, and for the percentiles of all."""
    for each in growth:
        (small, first), *others = each.figures.items()
        for size, found in others:
            sizes = f"of {size} against {small}"
            if each.unit == "companies":
                rate = found.rate / first.rate
                yield Goal(f"{each.operation}, requests/s {sizes}", rate, LEAST_RATE, is_least=True)
            elif each.further:
                cost = (found.all_cpu - first.all_cpu) / each.further
                title = f"{each.operation}, CPU ms for each further 1,000 matches"
                yield Goal(title, cost, MOST_COST_OF_MATCHES)
            else:
                cost = found.all_cpu / first.all_cpu
                yield Goal(f"{each.operation}, CPU {sizes}", cost, MOST_COST)
        spread = max(found.spread for found in each.figures.values())
        yield Goal(f"{each.operation} by {each.unit}, largest p99/p50", spread, MAX_SPREAD)


def replace_section(facts: str, tables: Sequence[Table]) -> None:
    """Write the tables between the marks of the page."""
    parts = [facts, *(_to_markdown(table) for table in tables)]
    section = "\n\n".join([BEGIN, *parts, END])
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    text, count = pattern.subn(lambda _: section, PAGE.read_text())
    if count != 1:
        raise RuntimeError(f"{PAGE} must contain {BEGIN} and {END} once.")
    PAGE.write_text(text)


def _to_markdown(table: Table) -> str:
    head = f"| {' | '.join([table.title, *table.columns[1:]])} |"
    rule = f"|---|{'--:|' * (len(table.columns) - 1)}"
    return "\n".join([head, rule, *(f"| {' | '.join(row)} |" for row in table.rows)])


async def describe_run(setting: Setting, rounds: int) -> str:
    """Return a sentence about the machine, the versions and the options."""
    async with open_connection(setting.service.url) as conn:
        version = await conn.fetchval("show server_version")
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit or 'unknown'}: "
        f"{_read_field('/proc/cpuinfo', 'model name') or 'unknown processor'}, "
        f"{os.cpu_count()} processors, "
        f"{int(_read_field('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.0f} GB of memory, "
        f"PostgreSQL {version}, Python {platform.python_version()};\n"
        f"{setting.connections} connections, {setting.seconds} s for each measurement, "
        f"medians of {rounds} rounds, {len(setting.data.companies):,} companies "
        f"{setting.data.choice} with {len(setting.data.companies[0].ids):,} invoices each, "
        f"{len(setting.data.large.ids):,} invoices to export."
    )


def _read_field(path: str, name: str) -> str:
    """Return the first value of a field of a file in /proc, or "" if there is none."""
    lines = Path(path).read_text().splitlines()
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")
