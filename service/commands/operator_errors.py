"""Messages about the environment of a command: what is wrong, and what the operator can do."""

import errno
import re
import socket
import ssl
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from service.errors import OperatorError, describe_error

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
#: Class and message of an error -> what is wrong, with what cures it. The first match counts.
_MESSAGES: dict[tuple[type[BaseException], str], str] = {
    (asyncpg.ClientConfigurationError, r"(?P<problem>.*?)\.?$"): (
        "{problem}. The URL must have the form postgresql://user:password@host:port/database."
    ),
    (ConnectionRefusedError, ""): (
        "No PostgreSQL answers at {place}. Start it, or correct host and port."
    ),
    (socket.gaierror, ""): "The host {host} is unknown. Correct its name.",
    (TimeoutError, ""): "PostgreSQL at {place} does not answer. Check host, port and firewall.",
    (ssl.SSLCertVerificationError, ""): (
        "The certificate of PostgreSQL at {place} is not trusted ({error.verify_message}). "
        "Correct the host, or sslrootcert in the URL."
    ),
    (ConnectionError, "rejected SSL upgrade"): (
        "No PostgreSQL with TLS answers at {place}. Correct host and port, or sslmode in the URL."
    ),
    (OSError, ""): "PostgreSQL at {place} cannot be reached ({why}). Check host and network.",
    (asyncpg.InvalidCatalogNameError, ""): (
        'There is no database "{name}" at {place}. Correct its name, or create it: '
        'create database "{name}";'
    ),
    (asyncpg.InvalidAuthorizationSpecificationError, ""): (
        "PostgreSQL refuses the login {user}. Correct user and password."
    ),
    (asyncpg.TooManyConnectionsError, ""): (
        "PostgreSQL has no free connection. Lower POOL_SIZE, or raise max_connections or "
        "the connection limit of the login."
    ),
    (asyncpg.CannotConnectNowError, ""): (
        "PostgreSQL is starting or shutting down. Try again in a moment."
    ),
    (asyncpg.PostgresError, r'permission denied to set role "(?P<role>\w+)"'): (
        "The login {user} may not act as {role}. Run as the owner of the database: "
        "grant {role} to {user};"
    ),
    (asyncpg.PostgresError, r'role "(?P<role>einvoice_\w+)" does not exist'): (
        "The role {role} is missing, so the database was not migrated. "
        "Run `run.py migrate` with DATABASE_OWNER_URL."
    ),
    (
        asyncpg.PostgresError,
        r'must be (?:a )?(?:member of|able to SET ROLE)(?: role)? "?einvoice_\w+"?',
    ): (
        "The login {user} does not belong to the roles of the service, which another "
        "database of the server created. Run as a superuser: "
        "grant einvoice_service, einvoice_across to {user} with admin option;"
    ),
    (asyncpg.PostgresError, "permission denied to create role"): (
        "The login {user} may not create roles. Run: alter role {user} createrole;"
    ),
    (asyncpg.PostgresError, "permission denied for database"): (
        'The login {user} may not connect. Run: grant connect on database "{name}" to {user};'
    ),
    (asyncpg.PostgresError, "permission denied for schema|must be owner of"): (
        "The login {user} may not migrate the database. "
        "Set DATABASE_OWNER_URL to a login that owns it."
    ),
    (BaseException, ""): "The database cannot be used: {text}",
}
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
    found = (
        wording.format(**facts, **match.groupdict())
        for (kind, pattern), wording in _MESSAGES.items()
        if isinstance(error, kind) and (match := re.search(pattern, text))
    )
    return f"{variable}: {next(found)}"


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


def check_folder(path: Path, variable: str) -> None:
    """Create a folder if it is missing. Raises OperatorError if files cannot be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise OperatorError(
            f"The folder {path} cannot be used: {error.strerror}. Correct its rights, or set "
            f"{variable} to another folder."
        ) from None


def first_line(error: BaseException) -> str:
    """Return the message of PostgreSQL without its details and hints."""
    return str(error).partition("\n")[0] or type(error).__name__
