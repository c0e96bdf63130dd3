"""What a run says at its end, and what it finds missing in itself."""

from collections.abc import Iterator, Mapping

from service import failpoints

from . import schedule
from .counters import Counters

ROWS = (*schedule.ROWS, *schedule.OWN_ROWS, schedule.KNOWN_AGAIN)
PEAK = "peak kB of a service"  # the counter
CLAIMS = "claims without a result, most"  # the counter
MEMORY = 300_000  # kB that a process of the service may have at most
NAIVE_SHARE = 15  # of so many documents, the naive worker has to send one twice


#: Failpoints of submissions that a client asks for and waits for. Where the portal detects
#: duplicates itself, all
#: submissions are made by the workers.
OF_REQUESTS = ("before_freeze_commit", "after_freeze_commit", "before_reply")
#: Counters that every run has to bring to a minimum: a run without one of these events has not
#: tested it.
WANTED = (
    *[f"kill {name}" for name in failpoints.NAMES if name not in OF_REQUESTS],
    *[f"row {name}" for name in ROWS],
    *("pauses", "pauses longer than the settling time", "database restarts"),
    *("commit answers lost", "connections cut", "connections silent", "odd rows"),
)
#: Further ones of seeds in which clients submit every kind of document.
WANTED_KINDS = (
    *[f"kill {name}" for name in OF_REQUESTS],
    *("submitted INVOICE", "submitted SELF_BILLED_INVOICE"),
    *("submitted CREDIT_NOTE", "submitted DEBIT_NOTE", "submitted REFUND_NOTE"),
    *("submitted CONSOLIDATED_INVOICE", "submitted CONSOLIDATED_SELF_BILLED_INVOICE"),
)
ALL_KINDS = "seeds with all kinds of documents"  # the counter


def wanted(counters):
    """Return the names of the counters that a run has to bring to a minimum."""
    names = [
        name for name in WANTED if name != f"row {schedule.KNOWN_AGAIN}" or name in counters.counts
    ]
    return [*names, *(WANTED_KINDS if counters.counts[ALL_KINDS] else ())]


def line(seed, mode, counters):
    """A seed in a few words."""
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


def table(counters, seeds):
    """Everything, a figure a line; failpoints and rows of the portal with how often each came up."""
    lines = [f"\nseeds {seeds[0]} to {seeds[-1]}"]
    lines += [f"  {name:28}{value:>10,}" for name, value in _figures(counters).items()]
    lines += ["", f"  {'failpoint':28}{'passed':>10}{'killed':>8}{'stopped':>8}"]
    for name in failpoints.NAMES:
        passed, killed, stopped = (
            counters.counts[f"{what} {name}"] for what in ("pass", "kill", "stop")
        )
        lines.append(f"  {name:28}{passed:>10,}{killed:>8,}{stopped:>8,}")
    lines += ["", f"  {'what the portal did':28}{'times':>10}"]
    lines += [f"  {name:28}{counters.counts[f'row {name}']:>10,}" for name in ROWS]
    return "\n".join(lines) + "\n"


def _figures(counters):
    """{name: number} of the table's first part."""
    counts, highest = counters.counts, counters.highest
    named = sum(counts[f"kill {name}"] for name in failpoints.NAMES)
    figures = {
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
        "refused twins",
        "said by the sweep",
        "unresolved",
        "naive documents",
        "naive duplicates",
        "seconds",
    )
    figures |= {name: counts[name] for name in names}
    figures |= {name: highest[name] for name in ("seconds to settle", CLAIMS)}
    return figures | {"peak MB": highest[PEAK] // 1000}


def missing(counters: Counters, wanted: Mapping[str, int]) -> Iterator[str]:
    """Yield lines that say what a run has not shown. `wanted` is {event: how often it has to happen}."""
    for name, least in wanted.items():
        if counters.counts[name] < least:
            yield f"too seldom: {name}, {counters.counts[name]} times instead of {least}"
    naive, documents = counters.counts["naive duplicates"], counters.counts["naive documents"]
    if documents and naive * NAIVE_SHARE <= documents:
        yield f"the schedule does not bite: {naive} duplicates in {documents} documents of the naive worker"
    if counters.highest[PEAK] >= MEMORY:
        yield f"memory: a process of the service had {counters.highest[PEAK]:,} kB"
