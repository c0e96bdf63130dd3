"""Judges how the processor time of a door grows with the size of its input.

A door is everything that reads bytes from outside. Below the size at which it costs 20 ms, growth
is not measurable and harmless. From that size on, the input is doubled three times, and doubled
time per doubled size is what is expected. Pure functions over the measured times.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

#: The processor time from which growth is measured, above that of the smallest input.
START_SECONDS = 0.020
DOUBLINGS = 3
REPEATS = 5
#: Growth of the time in a doubling that fails if the next one grows like it.
MOST_GROWTH = 2.5
#: The longest time of one input, also if it is linear. The syntax of a body of two megabytes takes
#: 50 to 200 ms, and its check as much; a busy machine inflates both.
MOST_SECONDS = 0.5
SMALLEST = 512  # bytes
LADDER = 4  # fourfold steps below the limit
SMALL_LIMIT = 16_000  # bytes; larger doors are not measured at their limit first
STOP_SECONDS = 5.0  # A door that takes longer is not measured with larger inputs.
#: Growth of the time per growth of the size, measured once, up to which a door passes: a little
#: less than that of a time that grows by 2.5 for each doubling.
CLEAR_GROWTH = 1.5
FURTHER = 2  # times the limit up to which sizes are doubled, in case the limit does not hold

#: Returns the processor time in seconds of one input of a size in bytes.
Cost = Callable[[int], float]


@dataclass(slots=True)
class Verdict:
    """The times of a door by size of its input, in seconds, and why it fails, or no text."""

    name: str
    times: dict[int, float] = field(default_factory=dict[int, float])
    failure: str = ""

    @property
    def most(self) -> float:
        return max(self.times.values(), default=0.0)


def judge(name: str, cost: Cost, limit: int) -> Verdict:
    """Measure a door and return its Verdict. `limit` is the size up to which it accepts input.

    A door that fails is measured again, since a busy machine inflates times.
    """
    try:
        verdict = _measure(name, cost, limit)
        return _measure(name, cost, limit) if verdict.failure else verdict
    except Exception as error:  # a defect of the door too
        return Verdict(name, failure=f"raises {type(error).__name__}: {error}")


def _measure(name: str, cost: Cost, limit: int) -> Verdict:
    once = _climb(cost, _list_sizes(limit))
    if max(once.values()) < START_SECONDS:
        return Verdict(name, once)
    least = median(cost(SMALLEST) for _ in range(REPEATS))
    verdict = Verdict(name, {size: time - least for size, time in once.items()})
    dear = [size for size, time in verdict.times.items() if time >= START_SECONDS]
    if not dear:
        return verdict

    def measure(size: int, repeats: int = REPEATS) -> float:
        verdict.times[size] = median(cost(size) for _ in range(repeats)) - least
        return verdict.times[size]

    start = min(dear)
    while start // 2 >= SMALLEST and measure(start // 2, 1) >= START_SECONDS:
        start //= 2
    if _may_grow(verdict.times):
        verdict.failure = find_growth(_double(measure, start, limit * FURTHER))
    for size, time in sorted(verdict.times.items()):
        if not verdict.failure and time > MOST_SECONDS and measure(size) > MOST_SECONDS:
            verdict.failure = f"takes more than {MOST_SECONDS * 1000:.0f} ms for {size:,} bytes"
    return verdict


def _double(measure: Cost, start: int, most: int) -> list[float]:
    """Return the times of sizes that are doubled, up to `most` or a time that is too long."""
    times: list[float] = []
    for step in range(DOUBLINGS + 1):
        if start << step > most or (times and times[-1] > STOP_SECONDS):
            break
        times.append(measure(start << step))
    return times


def _climb(cost: Cost, sizes: list[int]) -> dict[int, float]:
    """Return the times of sizes, measured once, up to the first that takes too long."""
    times: dict[int, float] = {}
    for size in sizes:
        times[size] = cost(size)
        if times[size] > MOST_SECONDS:
            break
    return times


def _list_sizes(limit: int) -> list[int]:
    """Return sizes that grow fourfold up to the limit.

    Small ones are left out: what costs less than 20 ms at the limit costs less below it.
    """
    steps = LADDER if limit > SMALL_LIMIT else 0
    return [limit >> 2 * step for step in range(steps, -1, -1)]


def _may_grow(times: dict[int, float]) -> bool:
    """Return whether times that were measured once may grow more than their sizes.

    Doublings are then measured several times. Most doors need no more than this.
    """
    points = sorted(times.items())
    return any(
        time >= START_SECONDS
        and time / max(former, START_SECONDS / 8) > CLEAR_GROWTH * size / least
        for (least, former), (size, time) in pairwise(points)
    )


def find_growth(series: list[float]) -> str:
    """Return how the times of doubled sizes grow, if two doublings grow too much in succession."""
    growths = [later / max(former, START_SECONDS / 2) for former, later in pairwise(series)]
    if any(min(pair) > MOST_GROWTH for pair in pairwise(growths)):
        return "grows by " + ", ".join(f"{growth:.1f}" for growth in growths) + " per doubling"
    return ""
