"""Starts commands of run.py in processes that can be made to end at a failpoint.

`python -m chaos.launcher` imports everything once and forks for each order, so that a start after
a kill is cheap. An order is one line of JSON: {argv, env, log, marks, plan}. The response is the
process id. When its input ends, all processes end.

The plan of an order is {point, times, action}: at that pass of the failpoint the process sends
itself SIGKILL or SIGSTOP. The service itself has no interface for plans.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from harness.processes import read_peak

import run
from service import failpoints

PR_SET_PDEATHSIG = 1
#: Constants without a setting, scaled like the settings of the run: (module, name, value).
SCALED = (
    ("service.portal.responses", "PAUSE", timedelta(seconds=0.5)),  # after a 429 without a time
    ("service.portal.responses", "PAUSE_LEAST", timedelta(seconds=0.1)),
    # With the real value, listings take so long that no document seems absent for long enough.
    ("service.portal.rate_limits", "TAXPAYER_SLACK", 0.1),
)
#: Modules that are imported before the first fork.
LOADED = ("service.app", "service.commands.demo", "service.sandbox.app", "chaos.naive")


def main() -> None:
    """Read orders from standard input and start a process for each."""
    for name in LOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children are reaped at once
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            _run_order(json.loads(line))
        print(pid, flush=True)


def _run_order(order: dict[str, Any]) -> NoReturn:
    """Run the command of an order in this process and exit."""
    status = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _redirect_output(order["log"])
        os.environ.update(order["env"])
        _scale_constants()
        install(order.get("plan"), order["marks"])
        _run_command(order["argv"])
        status = 0
    except SystemExit as end:
        print(end.code or "", file=sys.stderr)
        status = 0 if not end.code else 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _scale_constants() -> None:
    for module, name, value in SCALED:
        if not hasattr(importlib.import_module(module), name):
            raise AttributeError(f"{module} has no {name} to scale")
        setattr(importlib.import_module(module), name, value)


def _run_command(argv: list[str]) -> None:
    if argv[0] == "naive":
        importlib.import_module("chaos.naive").main()
    else:
        run.main(argv)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _redirect_output(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def install(plan: dict[str, Any] | None, marks: str) -> None:
    """Record every pass of a failpoint in an append-only file, and carry out the plan."""
    file = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    left = dict.fromkeys(failpoints.NAMES, 0)
    action, number = "", signal.SIGKILL
    if plan:
        left[plan["point"]] = plan["times"]
        action = plan["action"]
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action]

    def record(name: str) -> None:
        pid = os.getpid()
        os.write(file, f"pass {name} 0 {pid}\n".encode())
        left[name] -= 1
        if left[name] == 0:
            os.write(file, f"{action} {name} {read_peak(pid)} {pid}\n".encode())
            os.kill(pid, number)

    def make_action(name: str) -> Callable[[], None]:
        return lambda: record(name)

    for name in failpoints.NAMES:
        failpoints.set_action(name, make_action(name))


if __name__ == "__main__":
    main()
