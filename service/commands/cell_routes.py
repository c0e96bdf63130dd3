"""The include file of nginx with the keys whose company has moved to another cell."""

import errno
import fcntl
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from service.commands.operator_errors import OperatorError
from service.http.api_keys import KEY_ID_CHARACTERS

HEADING = "# Keys of companies that were moved to another cell. Written by move-company.\n"


def check_routes(path: Path | None, command: str | None) -> None:
    """Raise OperatorError if the routes cannot be written, or the command does not exist."""
    if path is not None:
        with _reporting(path), _locked(path.parent):
            _read(path)
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if command is not None:
        try:
            program = (shlex.split(command) or [""])[0]
        except ValueError as error:
            raise OperatorError(f"--reload: the command cannot be read: {error}.") from None
        if shutil.which(program) is None:
            raise OperatorError(f"--reload: there is no program {program!r}.")


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Turn errors of reading and writing the routes into OperatorError."""
    try:
        yield
    except OSError as error:
        raise OperatorError(f"The routes cannot be written to {path}: {error.strerror}.") from None
    except ValueError:
        raise OperatorError(f"{path} is not a file of routes, with lines like: a1b2 b;") from None


def write_routes(path: Path, key_ids: Sequence[str], cell: str) -> None:
    """Route keys to a cell. A key that contains the name of its cell needs no line.

    The file is replaced as a whole, so that nginx never reads a part of it. Raises OperatorError.
    """
    with _reporting(path), _locked(path.parent):
        routes = _read(path)
        for key_id in key_ids:
            routes.pop(key_id, None)
            if key_id[:-KEY_ID_CHARACTERS] != cell:
                routes[key_id] = cell
        _replace(path, routes)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that concurrent commands do not lose routes of each other."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> dict[str, str]:
    """Return {key id: cell}. Raises ValueError for a file of another kind."""
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(_parse(line) for line in lines if line.strip() and not line.startswith("#"))


def _parse(line: str) -> tuple[str, str]:
    """Return (key id, cell) of a line. Raises ValueError."""
    key_id, cell = line.removesuffix(";").split()
    return key_id, cell


def _replace(path: Path, routes: Mapping[str, str]) -> None:
    text = HEADING + "".join(f"{key_id} {cell};\n" for key_id, cell in sorted(routes.items()))
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        draft.chmod(path.stat().st_mode & 0o777)
    draft.replace(path)


def reload_proxy(command: str) -> None:
    """Run the operator's command that makes the proxy read the routes. Raises OperatorError."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperatorError(
            f"The command {command!r} failed with exit code {done.returncode}: "
            f"{done.stderr.strip() or done.stdout.strip()}"
        )
