"""Counts of the events of a run, and the marks that failpoints write to a file."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path


class Counters:
    """Counts, maximum values, and violations with their evidence."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.highest: dict[str, float] = {}
        self.violations: list[str] = []

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def reach(self, name: str, value: float) -> None:
        """Record a value of which the maximum counts."""
        self.highest[name] = max(self.highest.get(name, 0), value)

    def violate(self, rule: str, evidence: str) -> None:
        self.violations.append(f"{rule}: {evidence}")

    def add(self, other: "Counters") -> None:
        """Add the counts, maxima and violations of another run."""
        self.counts.update(other.counts)
        for name, value in other.highest.items():
            self.reach(name, value)
        self.violations += other.violations

    def seldom(self, names: Iterable[str], least: int) -> dict[str, int]:
        """Return {name: count} of the names that were counted less than `least` times."""
        return {name: self.counts[name] for name in names if self.counts[name] < least}


#: (action, failpoint) -> number of times; the action is "pass", "kill" or "stop".
Marks = Counter[tuple[str, str]]


def read_marks(path: Path) -> tuple[Marks, int]:
    """Return the marks of failpoints, and the peak resident memory of a process in kB."""
    counts: Marks = Counter()
    highest = 0
    for line in _read_lines(path):
        what, name, memory, _ = line.split()
        counts[what, name] += 1
        highest = max(highest, int(memory))
    return counts, highest


def was_killed(path: Path, pid: int | None) -> bool:
    """Return whether a process killed itself at a failpoint."""
    return any(line.startswith("kill ") and line.endswith(f" {pid}") for line in _read_lines(path))


def count_passes(path: Path, pid: int | None, since: int) -> int:
    """Return how often a process has passed failpoints.

    `since` is the size of the file before the process started.
    """
    if not path.exists():
        return 0
    with path.open() as file:
        file.seek(since)
        return sum(line.startswith("pass ") and line.endswith(f" {pid}\n") for line in file)


def size_of(path: Path) -> int:
    """Return the size of the file of marks, 0 before the first mark."""
    return path.stat().st_size if path.exists() else 0


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
