"""Messages about the environment of a command: what is wrong, and what the operator can do."""

import errno
import socket
import ssl
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from service.errors import OperatorError, describe_error, find_message

#: Errors of PostgreSQL, or of a connection to it.
DATABASE_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ConnectionError,
    socket.gaierror,
    ssl.SSLError,
    TimeoutError,
)
_PORTS = {
    errno.EADDRINUSE: "another program uses it",
    errno.EACCES: "it needs the rights of root",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}


def describe_database_error(error: BaseException, variable: str, url: str) -> str:
    """Return a line about an error of the database that an environment variable names."""
    parts, text = urlsplit(url), first_line(error)
    user = parts.username or "of this user"
    facts = {
        "error": error,
        "text": text,
        "why": getattr(error, "strerror", None) or text,
        "place": parts.netloc.rpartition("@")[2] or "the local socket",
        "host": parts.hostname,
        "user": user,
        "name": parts.path.strip("/") or user,
    }
    return f"{variable}: {find_message(__file__, error, text, facts)}"


def check_port(host: str, port: int, owner: str = "") -> None:
    """Raise OperatorError if a port cannot be listened on.

    `owner` begins the names of its variables: SANDBOX for SANDBOX_HOST and SANDBOX_PORT.
    """
    host_variable, variable = (f"{owner}_{name}".strip("_") for name in ("HOST", "PORT"))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if (error.errno or 0) < 0:  # of a name lookup
            raise OperatorError(f"The host {host} is unknown. Correct {host_variable}.") from None
        why = _PORTS.get(error.errno or 0, describe_error(error))
        raise OperatorError(
            f"Cannot listen on {host}:{port}: {why}. Stop that program, or set {variable} "
            "to another port."
            if error.errno == errno.EADDRINUSE
            else f"Cannot listen on {host}:{port}: {why}. Correct {host_variable} or {variable}."
        ) from None


def check_folder(path: Path) -> None:
    """Create a folder if it is missing. Raises OperatorError if files cannot be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise OperatorError(
            f"The folder {path} cannot be used: {error.strerror}. Correct its rights, or set "
            "DATA_DIR to another folder."
        ) from None


def first_line(error: BaseException) -> str:
    """Return the message of PostgreSQL without its details and hints."""
    return str(error).partition("\n")[0] or type(error).__name__
