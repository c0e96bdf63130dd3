"""Random schedules of the submission machine, without sockets: crashes between any two steps, pauses, a hostile portal.

    .venv/bin/python bench/schedules.py [--count 100000] [--seed 1]

Each seed is run twice: with a settling time that is long enough for this portal, and with one that is too short for a
portal that knows the same bytes and the same document again. Prints what was reached; ends with 1 at the first seed
with a second legal document, a call without an end, or a document that is not what the portal has.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from world import HASTY, TIMES, schedule

PART = 500


def run(first):
    """(states in which the calls of some seeds ended, what went wrong)"""
    ends, faults = Counter(), []
    for seed in range(first, first + PART):
        for times, detects in ((TIMES, False), (HASTY, True)):
            try:
                ends.update(
                    row.submission.state for row in schedule(seed, times, detects).rows.values()
                )
            except Exception as fault:
                faults.append(
                    f"seed {seed}, {'hasty' if detects else 'settled'}: {type(fault).__name__}: {fault}"
                )
    return ends, faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began, ends, faults = time.monotonic(), Counter(), []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for some, wrong in pool.map(run, range(given.seed, given.seed + given.count // 2, PART)):
            ends += some
            faults += wrong
    print(f"schedules {given.count}, seeds from {given.seed}, {time.monotonic() - began:.0f} s")
    print("calls ended " + ", ".join(f"{state} {count}" for state, count in ends.most_common()))
    print(f"violations {len(faults)}", *faults[:5], sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
