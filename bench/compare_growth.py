"""Measure how the service slows down with the size of a company and the number of companies."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from benchmark import Company
from compare_targets import (
    LIST,
    PAGE,
    SERVICE,
    Figures,
    Invoices,
    Process,
    Setting,
    add_invoices,
    choose_process,
    measure_load,
    next_codes,
    take_median,
    write_companies,
)
from wrk import Load

from tests.harness.databases import open_connection

SMALL = 1000  # invoices
FEW, MANY = 10, 10_000  # companies
EACH = 10  # invoices of each of them
WRITERS = 2  # companies that are created at a time, as many as the pool has connections
#: A day has as many invoices as a second of a day has in a company that is 2,740 times as large.
FOUR_DAYS = "&issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-04T23:59:59Z"
ELEVEN_SECONDS = "&issued_from=2026-03-01T01:00:01Z&issued_to=2026-03-01T01:00:11Z"
ONE_DAY = "&issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-02T00:00:00Z"
#: Lists by name, with their filters in the small and in the large company. One invoice in a hundred
#: is Invalid, the others are Drafts. A buyer and a code have one match at every size, a period has
#: eleven, and the day has 3 and 2,740, which are counted.
LISTS = {
    "list": ("", ""),
    "list, status of nearly all": ("&status=Draft",) * 2,
    "list, status of one in 100": ("&status=Invalid",) * 2,
    "list, name of a buyer": ("&query=Buyer%200000777",) * 2,
    "list, code": ("&query=777",) * 2,
    "list, a period with eleven invoices": (FOUR_DAYS, ELEVEN_SECONDS),
    "list, one day": (ONE_DAY,) * 2,
}


@dataclass(slots=True)
class Growth:
    """The figures of an operation at a small and a large size."""

    operation: str
    unit: str
    sizes: tuple[int, int]
    small: Figures
    large: Figures


async def measure_growth(setting: Setting, largest: int, rounds: int) -> list[Growth]:
    """Measure lists and get in companies of two sizes, get and create among few and many."""
    service = setting.service
    print(f"Creating companies with {SMALL:,} and {largest:,} invoices …", flush=True)
    sized = [await add_invoices(service, count) for count in (SMALL, largest)]
    few = await _add_companies(setting, FEW, "few")
    await service.vacuum()
    async with choose_process(setting, SERVICE) as process:
        grown = await _measure_sizes(setting, process, sized, rounds)
        before = await _measure_companies(setting, process, few, rounds)
    print(f"Creating {MANY:,} companies …", flush=True)
    many = await _add_companies(setting, MANY - FEW, "many")
    await service.vacuum()
    async with choose_process(setting, SERVICE) as process:
        after = await _measure_companies(setting, process, many, rounds)
    for operation in before:
        found = (before[operation], after[operation])
        grown.append(Growth(operation, "companies", (FEW, MANY), *found))
    return grown


async def _measure_sizes(
    setting: Setting, process: Process, companies: list[Invoices], rounds: int
) -> list[Growth]:
    """Measure lists and get. The rounds alternate between the companies."""
    sizes = (len(companies[0].ids), len(companies[1].ids))
    files = [write_companies(setting.service, str(len(each.ids)), [each]) for each in companies]
    requests = {
        name: [(LIST, PAGE + query) for query in queries] for name, queries in LISTS.items()
    }
    requests |= {"get": [("get",)] * 2}
    grown: list[Growth] = []
    for name, of_sizes in requests.items():
        loads = [
            Load(process.base, file, request, setting.connections)
            for file, request in zip(files, of_sizes, strict=True)
        ]
        print(f"Growth: {name} …", flush=True)
        small, large = await _measure_loads(setting, process, loads, rounds)
        grown.append(Growth(name, "invoices", sizes, small, large))
    return grown


async def _measure_loads(
    setting: Setting, process: Process, loads: list[Load], rounds: int
) -> list[Figures]:
    """Return the medians of each load."""
    measured = [
        [await measure_load(setting, process, load) for load in loads] for _ in range(rounds)
    ]
    return [take_median(figures) for figures in zip(*measured, strict=True)]


async def _measure_companies(
    setting: Setting, process: Process, file: Path, rounds: int
) -> dict[str, Figures]:
    """Measure get and create of the companies of a file in turn."""
    found: dict[str, list[Figures]] = {"get": [], "create": []}
    for _ in range(rounds):
        for operation, figures in found.items():
            codes = (str(setting.data.body), str(next_codes())) if operation == "create" else ()
            load = Load(process.base, file, (operation, *codes), setting.connections)
            figures.append(await measure_load(setting, process, load))
    return {f"{name}, companies in turn": take_median(figures) for name, figures in found.items()}


async def _add_companies(setting: Setting, count: int, name: str) -> Path:
    """Create companies with a few invoices each, and return their file for wrk."""
    service, numbers = setting.service, iter(range(count))
    companies: list[Company] = []

    async def add_some() -> None:
        for _ in numbers:
            companies.append(await service.add_company(EACH))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(add_some())
    async with open_connection(service.url) as conn:
        query = "select company_id, min(id) as id from documents group by company_id"
        ids = {row["company_id"]: row["id"] for row in await conn.fetch(query)}
    found = [Invoices(each, range(ids[each.id], ids[each.id] + 1)) for each in companies]
    return write_companies(service, name, found)
