"""Starts commands of run.py in processes of their own that can be told to end at a named moment.

`python -m chaos.launcher` loads everything once, reads an order a line, {argv, env, log, marks, plan}, and forks for
each, so that a start after a kill costs little. It answers with the process id. When its input ends, so do all.

The plan of an order, {point, times, action}, is this module's own: at the so many-th pass of that failpoint the process
sends itself SIGKILL or SIGSTOP. The service has no way to be given one.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import run
from service import failpoints

PR_SET_PDEATHSIG = 1
#: What no variable scales, scaled as the times are: (module, name, value).
SCALED = (
    (
        "service.portal.responses",
        "PAUSE",
        timedelta(seconds=0.5),
    ),  # a 429 that does not say how long
    ("service.portal.responses", "PAUSE_LEAST", timedelta(seconds=0.1)),
    # Or a listing takes so long that nothing seems absent for long
    ("service.portal.rate_limits", "TAXPAYER_SLACK", 0.1),
)
#: What a process is likely to import sooner or later.
LOADED = ("service.app", "service.commands.demo", "service.sandbox.app", "chaos.naive")


def main():
    for name in LOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: the dead go at once
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            _live(json.loads(line))
        print(pid, flush=True)


def _live(order):
    """The life of a process; never returns."""
    status = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _redirect(order["log"])
        os.environ.update(order["env"])
        _scale()
        install(order.get("plan"), order["marks"])
        _command(order["argv"])
        status = 0
    except SystemExit as end:
        print(end.code or "", file=sys.stderr)
        status = 0 if not end.code else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def _scale():
    for module, name, value in SCALED:
        if not hasattr(importlib.import_module(module), name):
            raise AttributeError(f"{module} has no {name} to scale")
        setattr(importlib.import_module(module), name, value)


def _command(argv):
    if argv[0] == "naive":
        return importlib.import_module("chaos.naive").main()
    return run.main(argv)


def _die_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _redirect(log):
    null, file = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
    )
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def install(plan, marks):
    """Counts every pass of every failpoint in a file that only grows, and carries out the plan."""
    file, left = (
        os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
        dict.fromkeys(failpoints.NAMES, 0),
    )
    if plan:
        left[plan["point"]] = plan["times"]

    def passed(name):
        os.write(file, f"pass {name} 0 {os.getpid()}\n".encode())
        left[name] -= 1
        if left[name] == 0:
            os.write(file, f"{plan['action']} {name} {peak(os.getpid())} {os.getpid()}\n".encode())
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[plan["action"]])

    for name in failpoints.NAMES:
        failpoints.set_action(name, lambda name=name: passed(name))


def peak(pid):
    """The most memory that a process has had resident, in kB; 0 for one that is gone, or where nobody keeps it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    main()
