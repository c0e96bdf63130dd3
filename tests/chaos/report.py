"""The report at the end of a run, and the events that the run should have had but had not."""

from collections.abc import Iterator, Mapping, Sequence

from tests.harness.failpoint_names import NAMES

from . import rules, schedule
from .counters import Counters

ROWS = (*schedule.ROWS, *schedule.OWN_ROWS, schedule.KNOWN_AGAIN)
PEAK = "peak kB of a service"  # name of a maximum
CLAIMS = "claims without a result, most"  # name of a maximum
PACE = "seconds of 14 submissions"  # name of a maximum
MEMORY = 300_000  # maximum kB of a process of the service
NAIVE_SHARE = 15  # the naive worker must send more than one in this many documents twice


#: Failpoints of submissions that a client requests and waits for. In seeds whose portal detects
#: duplicates, workers make all submissions.
OF_REQUESTS = ("before_queued_commit", "after_queued_commit", "before_reply")
#: Counters that every run must bring to a minimum: a run without one of these events has not tested
#: it.
WANTED = (
    *[f"kill {name}" for name in NAMES if name not in OF_REQUESTS],
    *[f"row {name}" for name in ROWS],
    *("pauses", "pauses longer than the settling time", "database restarts"),
    *("commit answers lost", "connections cut", "connections silent", "odd rows"),
    *("repetitions with a key", "repetitions after no answer", "answers replayed"),
)
#: Additional counters of seeds in which clients submit every kind of document.
WANTED_KINDS = (
    *[f"kill {name}" for name in OF_REQUESTS],
    *("submitted INVOICE", "submitted SELF_BILLED_INVOICE"),
    *("submitted CREDIT_NOTE", "submitted DEBIT_NOTE", "submitted REFUND_NOTE"),
    *("submitted CONSOLIDATED_INVOICE", "submitted CONSOLIDATED_SELF_BILLED_INVOICE"),
)
#: Counters of the cases of rules. A run without one has not tested the rule.
JUDGED = tuple(rules.name_cases(rule) for rule in rules.RULES if rule is not rules.adjusted_amounts)
JUDGED_KINDS = (rules.name_cases(rules.adjusted_amounts),)
ALL_KINDS = "seeds with all kinds of documents"  # name of a counter


def select_wanted(counters: Counters) -> list[str]:
    """Return the names of the counters that the run must bring to a minimum."""
    known_again = f"row {schedule.KNOWN_AGAIN}"
    names = [name for name in WANTED if name != known_again or name in counters.counts]
    return [*names, *(WANTED_KINDS if counters.counts[ALL_KINDS] else ())]


def select_judged(counters: Counters) -> list[str]:
    """Return the names of the counters of cases that the judge must have had."""
    return [*JUDGED, *(JUDGED_KINDS if counters.counts[ALL_KINDS] else ())]


def format_line(seed: int, mode: schedule.Mode, counters: Counters) -> str:
    """Return the summary of a seed in one line."""
    counts = counters.counts
    shown = (
        "kills",
        "pauses",
        "created",
        "lost",
        "duplicates",
        "unresolved",
        "naive duplicates",
        "seconds",
    )
    return f"seed {seed} ({mode.name}): " + ", ".join(f"{name} {counts[name]:,}" for name in shown)


def format_table(counters: Counters, seeds: Sequence[int]) -> str:
    """Return all figures, one per line, and the counts of failpoints and of the portal's rows."""
    lines = [f"\nseeds {seeds[0]} to {seeds[-1]}"]
    lines += [f"  {name:28}{value:>10,}" for name, value in _figures(counters).items()]
    lines += ["", f"  {'failpoint':28}{'passed':>10}{'killed':>8}{'stopped':>8}"]
    for name in NAMES:
        passed, killed, stopped = (
            counters.counts[f"{what} {name}"] for what in ("pass", "kill", "stop")
        )
        lines.append(f"  {name:28}{passed:>10,}{killed:>8,}{stopped:>8,}")
    lines += ["", f"  {'behaviour of the portal':28}{'times':>10}"]
    lines += [f"  {name:28}{counters.counts[f'row {name}']:>10,}" for name in ROWS]
    return "\n".join(lines) + "\n"


def _figures(counters: Counters) -> dict[str, float]:
    """Return {name: number} for the first part of the table."""
    counts, highest = counters.counts, counters.highest
    named = sum(counts[f"kill {name}"] for name in NAMES)
    figures: dict[str, float] = {
        "kills": counts["kills"],
        "at a failpoint": named,
        "at a random moment": counts["random kills"],
    }
    names = (
        "pauses",
        "database restarts",
        "commit answers lost",
        "connections cut",
        "connections silent",
        "odd rows",
        "pauses longer than the settling time",
        "requests",
        "requests without answer",
        "answers 503",
        "created",
        "submitted",
        "cancelled",
        "deleted",
        "acknowledged effects",
        "lost",
        "documents in the ledger",
        "duplicates",
        "refused duplicates",
        "reported by the comparison",
        "unresolved",
        "repetitions with a key",
        "repetitions after no answer",
        "answers replayed",
        "naive documents",
        "naive duplicates",
        "seconds",
    )
    figures |= {name: counts[name] for name in names}
    figures |= {name: counts[name] for name in (*JUDGED, *JUDGED_KINDS)}
    figures |= {name: highest.get(name, 0) for name in ("seconds to settle", PACE, CLAIMS)}
    return figures | {"peak MB": highest.get(PEAK, 0) // 1000}


def missing(counters: Counters, wanted: Mapping[str, int]) -> Iterator[str]:
    """Yield lines about everything that a run has not shown.

    `wanted` is {event: minimum number}.
    """
    for name, least in wanted.items():
        if counters.counts[name] < least:
            yield f"too seldom: {name}, {counters.counts[name]} times instead of {least}"
    naive, documents = counters.counts["naive duplicates"], counters.counts["naive documents"]
    if documents and naive * NAIVE_SHARE <= documents:
        yield (
            f"the schedule does not bite: {naive} duplicates in {documents} documents "
            "of the naive worker"
        )
    if counters.highest.get(PEAK, 0) >= MEMORY:
        yield f"memory: a process of the service had {counters.highest[PEAK]:,} kB"
