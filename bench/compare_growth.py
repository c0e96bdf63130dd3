"""Measure how the service slows down with the size of a company and the number of companies."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import compare_targets as targets
from compare_targets import GET, LIST, PAGE, Figures, Process, Setting
from wrk import CREATE, Load

SMALL = 1000  # invoices
EACH = 10  # invoices of each of many companies
#: The numbers of companies that send requests, and their choice. All are the first of the same
#: companies, which exist during all measurements. The others are compared with the first shape.
SHAPES = ((20, targets.IN_TURN), (1000, targets.BY_ZIPF), (10_000, targets.IN_TURN))
DAYS = 365  # over which the invoices of a company are spread
#: A day has as many invoices as a second of a day has in a company that is 2,740 times as large.
FOUR_DAYS = "&issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-04T23:59:59Z"
ELEVEN_SECONDS = "&issued_from=2026-03-01T01:00:01Z&issued_to=2026-03-01T01:00:11Z"
ONE_DAY = "&issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-02T00:00:00Z"
MORE_MATCHES = "list, one day"
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
    MORE_MATCHES: (ONE_DAY,) * 2,
}


@dataclass(frozen=True, slots=True)
class Growth:
    """The figures of an operation by size. The first size is the one to compare with.

    A size is a number of companies or of invoices. `further` is the number of matches that the
    large size has more than the small one, 0 if they have equally many.
    """

    operation: str
    unit: str
    figures: Mapping[str, Figures]
    further: int = 0


async def measure_growth(setting: Setting, largest: int, rounds: int) -> list[Growth]:
    """Measure get, list and create of many companies, and lists and get in two of unequal size."""
    service, most = setting.service, max(count for count, _ in SHAPES)
    print(f"Creating companies with {SMALL:,} and {largest:,} invoices …", flush=True)
    both = [await targets.add_invoices(service, 1, count) for count in (SMALL, largest)]
    print(f"Creating {most:,} companies with {EACH} invoices …", flush=True)
    many = await targets.add_invoices(service, most, EACH)
    await service.vacuum()
    shapes = {
        f"{count:,} companies {choice}": targets.write_companies(service, many[:count], choice)
        for count, choice in SHAPES
    }
    sizes = {f"{len(one[0].ids):,} invoices": targets.write_companies(service, one) for one in both}
    grown: list[Growth] = []
    async with targets.choose_process(setting, targets.SERVICE) as process:
        load = partial(Load, process.base, connections=setting.connections)
        measure = partial(_measure_loads, setting, process, rounds)
        for operation in (GET, LIST, CREATE):
            request = targets.make_request(operation, setting.data)
            loads = {shape: load(file, request=request) for shape, file in shapes.items()}
            grown.append(Growth(operation, "companies", await measure(operation, loads)))
        lists = {name: [(LIST, PAGE + text) for text in texts] for name, texts in LISTS.items()}
        for name, requests in {GET: [(GET,)] * 2, **lists}.items():
            pairs = zip(sizes.items(), requests, strict=True)
            loads = {size: load(file, request=request) for (size, file), request in pairs}
            further = (largest - SMALL) // DAYS if name == MORE_MATCHES else 0
            grown.append(Growth(name, "invoices", await measure(name, loads), further))
    return grown


async def _measure_loads(
    setting: Setting, process: Process, rounds: int, name: str, loads: Mapping[str, Load]
) -> dict[str, Figures]:
    """Return the medians of each load. Each round measures all of them."""
    print(f"Growth: {name}, {', '.join(loads)} …", flush=True)
    measured: dict[str, list[Figures]] = {size: [] for size in loads}
    for _ in range(rounds):
        for size, load in loads.items():
            measured[size].append(await targets.measure_load(setting, process, load))
    return {size: targets.take_median(figures) for size, figures in measured.items()}
