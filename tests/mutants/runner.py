"""Apply mutants to copies of the source tree and run the tests that must notice them."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness.paths import ROOT

from .cases import Mutant

PATIENCE_SECONDS = "20"  # limit of a test that waits for an event that a mutant prevents
STOP_SECONDS = 30  # for pytest to run its teardown after SIGINT
#: Exit codes of pytest.
PASSED, FAILED = 0, 1

KILLED, TIMED_OUT, SURVIVED = "killed", "killed by the time limit", "SURVIVED"
NOT_APPLICABLE, BROKEN = "NOT APPLICABLE", "BROKEN"
#: Outcomes after which `make mutants` succeeds.
NOTICED = {KILLED, TIMED_OUT}

_FAILED_TEST = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)


class NotApplicable(Exception):
    """The code that the mutant replaces has changed."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one mutant. `detail` is the test that failed, or the error."""

    mutant: Mutant
    outcome: str
    seconds: float
    detail: str
    output: str = ""

    @property
    def is_noticed(self) -> bool:
        return self.outcome in NOTICED

    def line(self) -> str:
        return (
            f"{self.outcome:<25}{self.seconds:6.1f} s  {self.mutant.name}  {self.detail}".rstrip()
        )


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text of the mutant's file with the defect.

    Raises NotApplicable unless `old` occurs exactly once.
    """
    count = text.count(mutant.old)
    if count != 1:
        found = "does not occur" if not count else f"occurs {count} times"
        raise NotApplicable(
            f"the mutant no longer applies: update it. Its text {found} in {mutant.file}"
        )
    return text.replace(mutant.old, mutant.new)


def check(mutant: Mutant, root: Path = ROOT) -> None:
    """Raise NotApplicable if the mutant or the file of its test does not fit the tree."""
    path = root / mutant.file
    if mutant.old:
        mutated(path.read_text() if path.exists() else "", mutant)
    elif path.exists():
        raise NotApplicable(f"the mutant adds {mutant.file}, which exists already")
    if not (root / mutant.test.partition("::")[0]).exists():
        raise NotApplicable(f"its test {mutant.test} does not exist")


def apply(mutant: Mutant, root: Path) -> None:
    """Write the defect into the tree at `root`."""
    check(mutant, root)
    path = root / mutant.file
    path.write_text(mutated(path.read_text(), mutant) if mutant.old else mutant.new)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def copy_tree(target: Path, root: Path = ROOT) -> None:
    """Copy the work tree without the repository and the files that `.gitignore` names."""
    ignored = [line.rstrip("/") for line in (root / ".gitignore").read_text().split()]
    shutil.copytree(root, target, ignore=shutil.ignore_patterns(".git", *ignored))


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs mutants of the tree at `base` against one PostgreSQL.

    `jobs` run at a time, each for at most `limit` seconds.
    """

    base: Path
    scratch: Path
    database_url: str
    jobs: int
    limit: float

    @property
    def _workers(self) -> int:
        """Return the number of worker processes of pytest, 0 for none."""
        return self.jobs if self.jobs > 1 else 0

    async def baseline(self, mutants: Sequence[Mutant]) -> Result | None:
        """Run all selected tests without a mutant. Return the failure, or None if all pass."""
        tests = list(dict.fromkeys(mutant.test for mutant in mutants))
        nothing = Mutant("without any mutant", "", "", "", "")
        code, seconds, output = await self._pytest(
            self.base, tests, self.limit * max(1, len(mutants) / 2), self._workers
        )
        if code == PASSED:
            return None
        return Result(
            nothing,
            BROKEN,
            seconds,
            f"the tests fail without a mutant: {_failures(output)}",
            output,
        )

    async def run(self, mutants: Iterable[Mutant]) -> AsyncIterator[Result]:
        """Yield the result of each mutant as soon as it is known."""
        slots = asyncio.Semaphore(self.jobs)

        async def run_in_turn(mutant: Mutant) -> Result:
            async with slots:
                return await self.run_one(mutant)

        tasks = [asyncio.create_task(run_in_turn(mutant)) for mutant in mutants]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run_one(self, mutant: Mutant) -> Result:
        """Run the mutant's tests on a copy of the tree that has the defect."""
        tree = self.scratch / mutant.name
        try:
            await asyncio.to_thread(shutil.copytree, self.base, tree)
            apply(mutant, tree)
            code, seconds, output = await self._pytest(tree, [mutant.test], self.limit, 0)
        except NotApplicable as error:
            return Result(mutant, NOT_APPLICABLE, 0, str(error))
        finally:
            await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
        return Result(mutant, *_judge(code, seconds, output), output)

    async def _pytest(
        self, tree: Path, tests: Sequence[str], limit: float, workers: int
    ) -> tuple[int | None, float, str]:
        """Run pytest in a tree. Return its exit code, its seconds and its output.

        The exit code is None after the time limit.
        """
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-x", "-q", "-rfE"),
            *("-p", "no:cacheprovider", "-n", str(workers), *tests),
            cwd=tree,
            env={
                **os.environ,
                "DATABASE_URL": self.database_url,
                "TEST_PATIENCE_SECONDS": PATIENCE_SECONDS,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reading = asyncio.create_task(process.communicate())
        code = None
        try:
            await asyncio.wait({reading}, timeout=limit)
            code = process.returncode if reading.done() else None
        finally:
            await _stop(process, reading)
        output, _ = await reading
        return code, time.monotonic() - began, output.decode(errors="replace")


async def _stop(
    process: asyncio.subprocess.Process, reading: asyncio.Task[tuple[bytes, bytes]]
) -> None:
    """Stop a running pytest, with its teardown if possible."""
    if reading.done():
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        done, _ = await asyncio.wait({reading}, timeout=STOP_SECONDS)
        if done:
            return


def _judge(code: int | None, seconds: float, output: str) -> tuple[str, float, str]:
    """Return outcome, seconds and detail. A mutant whose tests cannot run is not noticed."""
    if code is None:
        return TIMED_OUT, seconds, ""
    if code == PASSED:
        return SURVIVED, seconds, "no test failed"
    if code == FAILED and (failed := _FAILED_TEST.search(output)):
        return KILLED, seconds, f"by {failed[1]}"
    return BROKEN, seconds, f"its tests could not run: {_failures(output)}"


def _failures(output: str) -> str:
    """Return the lines of pytest's summary that name failures, or the last line."""
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(lines or output.splitlines()[-1:])


@asynccontextmanager
async def prepared(
    scratch: Path, database_url: str, jobs: int, limit: float
) -> AsyncIterator[Runner]:
    """Return a Runner on a copy of the work tree."""
    base = scratch / "base"
    await asyncio.to_thread(copy_tree, base)
    yield Runner(base, scratch, database_url, jobs, limit)
