"""What happened in a run, by name; and that of each thing that was to happen, enough did."""

from collections import Counter
from pathlib import Path


class Counters:
    """Counts, highest values, and violations with their evidence."""

    def __init__(self):
        self.counts = Counter()
        self.highest = Counter()
        self.violations = []

    def count(self, name, by=1):
        self.counts[name] += by

    def reach(self, name, value):
        self.highest[name] = max(self.highest[name], value)

    def violate(self, rule, evidence):
        self.violations.append(f"{rule}: {evidence}")

    def add(self, other):
        """Takes in what another run counted."""
        self.counts.update(other.counts)
        for name, value in other.highest.items():
            self.reach(name, value)
        self.violations += other.violations

    def seldom(self, names, least):
        """The names that were counted less than `least` times, with how often they were."""
        return {name: self.counts[name] for name in names if self.counts[name] < least}


def marks(path):
    """(Counter of what failpoints wrote, ("pass" | "kill" | "stop", name); the highest resident memory in kB)"""
    counts, highest = Counter(), 0
    for line in _lines(path):
        what, name, memory, _ = line.split()
        counts[what, name] += 1
        highest = max(highest, int(memory))
    return counts, highest


def killed(path, pid):
    """Whether a process ended itself at a failpoint."""
    return any(line.startswith("kill ") and line.endswith(f" {pid}") for line in _lines(path))


def count_passes(path: Path, pid: int, since: int) -> int:
    """Return how often a process has passed failpoints. `since` is a size that the file had before the process started."""
    if not path.exists():
        return 0
    with path.open() as file:
        file.seek(since)
        return sum(line.startswith("pass ") and line.endswith(f" {pid}\n") for line in file)


def size_of(path: Path) -> int:
    """Return the size of the file of marks, 0 before the first mark."""
    return path.stat().st_size if path.exists() else 0


def _lines(path):
    return path.read_text().splitlines() if path.exists() else ()
