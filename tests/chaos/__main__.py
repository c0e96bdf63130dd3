"""`make chaos`: plays seeds, prints what happened and what was found, and ends with 1 when anything was.

Each variable of the environment or option sets one bound: `make chaos SEEDS=1` or `make chaos ARGS="--seeds 1"`.
"""

import argparse
import os
import sys
from collections import Counter
from dataclasses import asdict

from service.commands.bootstrap import run

from . import report, schedule
from .counters import Counters
from .season import Size, play

FULL = 10  # seeds of a full run


def main():
    options = _parser().parse_args()
    size = Size(**{name: getattr(options, name) for name in asdict(Size())})
    total, seeds = Counters(), range(options.seed, options.seed + options.seeds)
    wanted: Counter[str] = Counter()  # event -> how often it has to happen in all seeds together
    for seed in seeds:
        mode = schedule.MODES[
            schedule.TURNS[seed % len(schedule.TURNS)] if options.mode is None else options.mode
        ]
        counters = run(play(seed, mode, size, options.keep and f"{options.keep}/{seed}"))
        print(report.line(seed, mode, counters), flush=True)
        for violation in counters.violations:
            print(f"  seed {seed}: {violation[:1000]}", flush=True)
        wanted.update(dict.fromkeys(report.wanted(counters), size.least))
        total.add(counters)
    wrong = [*total.violations, *report.missing(total, wanted)]
    print(report.table(total, seeds))
    for line in wrong:
        print(f"VIOLATED: {line[:1000]}")
    print(
        "Nothing is violated."
        if not wrong
        else f"{len(wrong)} violations; seeds {seeds[0]} to {seeds[-1]}."
    )
    return 1 if wrong else 0


def _parser():
    """The options, each with the variable of the same name in capitals as its default."""
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Breaks everything, and judges what is left."
    )
    defaults = {"seed": 1, "seeds": FULL, **asdict(Size())}
    for name, value in defaults.items():
        parser.add_argument(
            f"--{name}", type=type(value), default=os.environ.get(name.upper(), value)
        )
    modes = "; ".join(f"{number}: {mode.name}" for number, mode in enumerate(schedule.MODES))
    choices, default = range(len(schedule.MODES)), os.environ.get("MODE")
    parser.add_argument(
        "--mode", type=int, choices=choices, default=default, help=f"by turns, or one of: {modes}"
    )
    parser.add_argument(
        "--keep", help="a directory for logs and data, which are thrown away otherwise"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
