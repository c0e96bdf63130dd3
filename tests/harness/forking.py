"""Starts functions in forks of one process, which has imported the service once.

An import takes a second of CPU time, and the test suite starts hundreds of processes. A fork has
its own session, environment and output like a started program.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.harness.paths import ROOT

PR_SET_PDEATHSIG = 1

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["service.app", "service.commands.main", "service.sandbox.app", "tests.harness.failing"]
)


def start(
    target: Callable[[], None], environment: Mapping[str, str], out: Path, err: Path
) -> BaseProcess:
    """Start a function, which can be pickled, and return its process.

    Output and errors are appended to files. The process ends with the process that started it.
    """
    order = (target, dict(environment), str(out), str(err))
    process = _context.Process(target=_run, args=order, daemon=True)
    process.start()
    return process


def _run(target: Callable[[], None], environment: dict[str, str], out: str, err: str) -> None:
    """Run a function in this fork. A SystemExit sets the exit code."""
    os.setsid()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    _die_with_parent()
    # A shell without job control starts background commands with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    target()


def _die_with_parent() -> None:
    """Make the kernel end this process when the process that forks has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
