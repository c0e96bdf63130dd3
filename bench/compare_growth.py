"""Measure how the service slows down with the size of a company and the number of companies."""

import asyncio
from dataclasses import dataclass

import asyncpg
from benchmark import Company
from compare_targets import (
    LIST_APART,
    PAGE,
    SERVICE,
    Figures,
    Process,
    Setting,
    choose_process,
    measure_load,
    next_codes,
    read_ids,
    take_median,
)
from programs import ProgramError
from wrk import Load

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
    """The figures of an operation at a small and a large size, None if requests failed."""

    operation: str
    unit: str
    sizes: tuple[int, int]
    small: Figures | None = None
    large: Figures | None = None

    @property
    def ratio(self) -> float | None:
        """The requests per second at the large size for each one at the small size."""
        return self.large.rate / self.small.rate if self.small and self.large else None

    @property
    def cost(self) -> float | None:
        """The CPU time per request at the large size for that at the small size."""
        return self.large.all_cpu / self.small.all_cpu if self.small and self.large else None


async def measure_growth(setting: Setting, largest: int, rounds: int) -> list[Growth]:
    """Measure lists and get in companies of two sizes, get and create among few and many."""
    service = setting.service
    print(f"Creating companies with {SMALL:,} and {largest:,} invoices …", flush=True)
    sized = [await service.add_company(count) for count in (SMALL, largest)]
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
    setting: Setting, process: Process, companies: list[Company], rounds: int
) -> list[Growth]:
    """Measure lists and get. The rounds alternate between the companies."""
    ids = [await read_ids(setting.service.url, company) for company in companies]
    sizes = (len(ids[0]), len(ids[1]))
    requests = {
        name: [(LIST_APART, PAGE + query) for query in queries] for name, queries in LISTS.items()
    }
    requests |= {"get": [("get", str(each[0]), str(each[-1])) for each in ids]}
    grown: list[Growth] = []
    for name, of_sizes in requests.items():
        loads = [
            Load(process.base, company.key, request, setting.connections)
            for company, request in zip(companies, of_sizes, strict=True)
        ]
        print(f"Growth: {name} …", flush=True)
        small, large = await _measure_loads(setting, process, loads, rounds)
        grown.append(Growth(name, "invoices", sizes, small, large))
    return grown


async def _measure_loads(
    setting: Setting, process: Process, loads: list[Load], rounds: int
) -> list[Figures | None]:
    """Return the medians of each load, None if requests of it failed."""
    measured: list[list[Figures]] = [[] for _ in loads]
    failed: set[int] = set()
    for _ in range(rounds):
        for place, load in enumerate(loads):
            if place in failed:
                continue
            try:
                measured[place].append(await measure_load(setting, process, load))
            except ProgramError as error:
                failed.add(place)
                print(f"Failed: {error}", flush=True)
    return [
        None if place in failed else take_median(figures) for place, figures in enumerate(measured)
    ]


async def _measure_companies(
    setting: Setting, process: Process, file: str, rounds: int
) -> dict[str, Figures | None]:
    """Measure get and create of random companies of a file."""
    measured: dict[str, list[Figures]] = {"get": [], "create": []}
    for _ in range(rounds):
        for operation, found in measured.items():
            request = (f"{operation}-any", file)
            if operation == "create":
                request += (str(setting.data.body), str(next_codes()))
            load = Load(process.base, "", request, setting.connections)
            found.append(await measure_load(setting, process, load))
    return {
        f"{operation}, random company": take_median(found) for operation, found in measured.items()
    }


async def _add_companies(setting: Setting, count: int, name: str) -> str:
    """Create companies with a few invoices each, and return a file for wrk with one id of each."""
    service, numbers = setting.service, iter(range(count))
    companies: list[Company] = []

    async def add_some() -> None:
        for _ in numbers:
            companies.append(await service.add_company(EACH))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(add_some())
    conn = await asyncpg.connect(service.url)
    try:
        query = "select company_id, min(id) as id from invoices group by company_id"
        ids = {row["company_id"]: row["id"] for row in await conn.fetch(query)}
    finally:
        await conn.close()
    path = service.home / f"companies-{name}.txt"
    path.write_text("".join(f"{each.key} {ids[each.id]} {ids[each.id]}\n" for each in companies))
    return str(path)
