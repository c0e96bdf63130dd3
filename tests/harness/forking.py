"""Starts commands of run.py in forks of one process, which has imported the service once.

An import takes a second of CPU time, and the test suite starts hundreds of processes. A fork has
its own session, environment and output like a started program.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["run", "harness.failing"])


def start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    failure: tuple[str, str] | None = None,
) -> BaseProcess:
    """Start a command and return its process. Output and errors are appended to files.

    `failure` is (how, name of a failpoint), as in `failing`.
    """
    order = (list(arguments), dict(environment), str(out), str(err), failure)
    process = _context.Process(target=_run, args=order, daemon=True)
    process.start()
    return process


def _run(
    arguments: list[str],
    environment: dict[str, str],
    out: str,
    err: str,
    failure: tuple[str, str] | None,
) -> None:
    """Run a command in this fork. A SystemExit sets the exit code."""
    os.setsid()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    if "SSL_CERT_FILE" in environment:  # aiohttp reads it at its import
        program = ["-m", "harness.failing", *failure] if failure else ["run.py"]
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
        os.execve(sys.executable, [sys.executable, *program, *arguments], environment)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.argv[:] = ["run.py", *arguments]
    import run
    from harness import failing

    if failure:
        failing.fail_at(*failure)
    run.main(arguments)
