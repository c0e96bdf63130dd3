"""The file with the cell of each TIN, which all cells share: a TIN belongs to one cell.

A line has a TIN and the name of a cell; the last line of a TIN counts. Commands append lines under
a lock of the file, which NFS and local file systems have.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from service.errors import OperatorError


def claim_tin(path: Path | None, tin: str, cell: str) -> None:
    """Record that a TIN belongs to a cell. Raises OperatorError if it belongs to another one."""
    if path is None or not tin:
        return
    with _locked(path) as file:
        owner = _read(file).get(tin)
        if owner not in (None, cell):
            raise OperatorError(
                f"The TIN {tin} belongs to the cell {owner}, according to {path}. "
                "Companies of one TIN are in one cell."
            )
        if owner is None:
            _append(file, tin, cell)


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    """Open the file, which is created if it is missing, and lock it. Raises OperatorError."""
    try:
        file = path.open("a+", encoding="utf-8", newline="\n")
    except OSError as error:
        raise OperatorError(f"CELL_REGISTRY: {path} cannot be written: {error.strerror}.") from None
    with file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield file


def _read(file: IO[str]) -> dict[str, str]:
    """Return the cell of each TIN. A line that was not written completely is ignored."""
    file.seek(0)
    words = (line.split() for line in file if line.endswith("\n"))
    return {line[0]: line[1] for line in words if len(line) == 2}


def _append(file: IO[str], tin: str, cell: str) -> None:
    """Append a line. A last line that was not written completely is removed."""
    file.seek(0)
    complete, newline, _ = file.read().rpartition("\n")
    file.truncate(len(f"{complete}{newline}".encode()))
    file.write(f"{tin} {cell}\n")
    file.flush()
    os.fsync(file.fileno())
