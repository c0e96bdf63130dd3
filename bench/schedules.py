"""Run random schedules of the submission state machine in a simulated world, without sockets.

    .venv/bin/python bench/schedules.py [--count 100000] [--seed 1]

A schedule has crashes between any two steps, pauses and a hostile portal. Each seed is run four
times: with a sufficient settling time, with one that is too short for a portal that detects
repeated bytes and duplicate documents, with failovers, and with failovers and steps of the clocks.
Prints the final states. Exits with 1 if a seed produced a second legal document, a submission or a
hold without an end, or a document that differs from the portal's.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmark import summary_of
from harness.world import CLOCKS, FAILOVERS, HASTY, schedule

PART = 500  # seeds per task
KINDS: dict[str, dict[str, Any]] = {
    "settled": {},
    "hasty": {"times": HASTY, "detects": True},
    "failovers": {"faults": FAILOVERS},
    "clocks": {"faults": CLOCKS},
}


def run_part(first: int) -> tuple[Counter[str], list[str]]:
    """Run some seeds. Return the final states of submissions, and the violations."""
    states: Counter[str] = Counter()
    violations = []
    for seed in range(first, first + PART):
        for name, values in KINDS.items():
            try:
                world = schedule(seed, **values)
                states.update(row.submission.state for row in world.rows.values())
            except Exception as error:
                violations.append(f"seed {seed}, {name}: {type(error).__name__}: {error}")
    return states, violations


def main() -> None:
    """Run all seeds on all processors and print the totals."""
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began, states, violations = time.monotonic(), Counter[str](), []
    firsts = range(options.seed, options.seed + options.count // len(KINDS), PART)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for some_states, some_violations in pool.map(run_part, firsts):
            states += some_states
            violations += some_violations
    seconds = time.monotonic() - began
    print(f"schedules {options.count}, seeds from {options.seed}, {seconds:.0f} s")
    counts = ", ".join(f"{state} {count}" for state, count in states.most_common())
    print(f"final states of submissions: {counts}")
    print(f"violations {len(violations)}", *violations[:5], sep="\n")
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
