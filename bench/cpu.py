"""CPU time and memory of process trees, and of PostgreSQL, from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

from benchmark import processes
from programs import ProgramError

from tests.harness.databases import open_connection

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SNAPSHOTS = 20  # attempts at a snapshot during which no process ends
#: Positions in /proc/PID/stat after the name: the parent, and the times of the process and of its
#: children that have ended.
PARENT, USER_TIME, ENDED_CHILDREN_END = 1, 11, 15


def read_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and all its descendants, including ended ones.

    An ended process counts in its parent once the parent has waited for it. The snapshot is
    repeated if a process ended meanwhile, since it may be counted twice or not at all.
    """
    table = _read_table()
    for _ in range(SNAPSHOTS):
        following = _read_table()
        if set(_find_tree(table, pid)) == set(_find_tree(following, pid)):
            break
        table = following
    ticks = sum(sum(table[member][1:]) for member in _find_tree(table, pid))
    return ticks / TICKS_PER_SECOND


def read_peak(pid: int) -> float:
    """Return the sum of the peaks of resident memory of a process and its descendants in MB."""
    return sum(processes.read_peak(member) for member in _find_tree(_read_table(), pid)) / 1000


async def find_postmaster(url: str) -> int:
    """Return the process id of a PostgreSQL on this machine: the parent of a backend.

    Raises ProgramError.
    """
    async with open_connection(url) as conn:
        status = processes.read_status(await conn.fetchval("select pg_backend_pid()"))
    if not status.get("Name", "").startswith("postgres"):
        raise ProgramError("PostgreSQL runs on another machine or in another container.")
    return int(status["PPid"])


def _read_table() -> dict[int, tuple[int, ...]]:
    """Return {pid: (parent, utime, stime, cutime, cstime)} of all processes, in clock ticks."""
    table: dict[int, tuple[int, ...]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # It has ended.
            continue
        numbers = [fields[PARENT], *fields[USER_TIME:ENDED_CHILDREN_END]]
        table[int(path.parent.name)] = tuple(map(int, numbers))
    return table


def _find_tree(table: dict[int, tuple[int, ...]], root: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, (parent, *_) in table.items():
        children.setdefault(parent, []).append(pid)
    waiting = [root] if root in table else []
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])
