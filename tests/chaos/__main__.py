"""`make chaos`: run seeds, print their events and violations, and exit with 1 after a violation.

Limits are set by environment variables or options: `make chaos SEEDS=1` or
`make chaos ARGS="--seeds 1"`.
"""

import argparse
import os
import sys
from collections import Counter
from dataclasses import asdict

from service.commands.bootstrap import run

from . import report, schedule
from .chaos_run import Size, play
from .counters import Counters

FULL = 10  # seeds of a full run


def main() -> int:
    """Run the seeds and print the report. Return the exit code."""
    options = _parser().parse_args()
    size = Size(**{name: getattr(options, name) for name in asdict(Size())})
    total, seeds = Counters(), range(options.seed, options.seed + options.seeds)
    wanted: Counter[str] = Counter()  # event -> minimum number in all seeds together
    for seed in seeds:
        mode = schedule.MODES[
            schedule.TURNS[seed % len(schedule.TURNS)] if options.mode is None else options.mode
        ]
        counters = run(play(seed, mode, size, options.keep and f"{options.keep}/{seed}"))
        print(report.format_line(seed, mode, counters), flush=True)
        for violation in counters.violations:
            print(f"  seed {seed}: {violation[:1000]}", flush=True)
        wanted.update(dict.fromkeys(report.select_wanted(counters), size.least))
        wanted.update(dict.fromkeys(report.select_judged(counters), 1))
        total.add(counters)
    wrong = [*total.violations, *report.missing(total, wanted)]
    print(report.format_table(total, seeds))
    for line in wrong:
        print(f"VIOLATED: {line[:1000]}")
    print(
        f"{len(wrong)} violations; seeds {seeds[0]} to {seeds[-1]}." if wrong else "No violation."
    )
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    """Return the options. Their defaults are the variables of the same names in capitals."""
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Disturb the service under load and check its promises."
    )
    defaults = {"seed": 1, "seeds": FULL, **asdict(Size())}
    for name, value in defaults.items():
        parser.add_argument(
            f"--{name}", type=type(value), default=os.environ.get(name.upper(), value)
        )
    modes = "; ".join(f"{number}: {mode.name}" for number, mode in enumerate(schedule.MODES))
    choices, default = range(len(schedule.MODES)), os.environ.get("MODE")
    parser.add_argument(
        "--mode",
        type=int,
        choices=choices,
        default=default,
        help=f"all in turn, or one of: {modes}",
    )
    parser.add_argument("--keep", help="directory for logs and data, which are removed otherwise")
    return parser


if __name__ == "__main__":
    sys.exit(main())
