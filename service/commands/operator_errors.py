"""Messages about the environment of a command: what is wrong, and what the operator can do."""

import errno
import os
import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from service.errors import describe_error

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
#: Message of PostgreSQL -> what is wrong, with the statement that cures it.
_RIGHTS = (
    (
        r'permission denied to set role "(?P<role>\w+)"',
        "The login {user} may not act as {role}. Run as the owner of the database: "
        "grant {role} to {user};",
    ),
    (
        r'role "(?P<role>einvoice_\w+)" does not exist',
        "The role {role} is missing, so the database was not migrated. "
        "Run `run.py migrate` with DATABASE_OWNER_URL.",
    ),
    (
        r'must be (?:a )?(?:member of|able to SET ROLE)(?: role)? "?einvoice_\w+"?',
        "The login {user} does not belong to the roles of the service, which another "
        "database of the server created. Run as a superuser: "
        "grant einvoice_service, einvoice_across to {user} with admin option;",
    ),
    (
        "permission denied to create role",
        "The login {user} may not create roles. Run: alter role {user} createrole;",
    ),
    (
        "permission denied for database",
        'The login {user} may not connect. Run: grant connect on database "{name}" to {user};',
    ),
    (
        "permission denied for schema|must be owner of",
        "The login {user} may not migrate the database. "
        "Set DATABASE_OWNER_URL to a login that owns it.",
    ),
)
_PORTS = {
    errno.EADDRINUSE: "another program uses it",
    errno.EACCES: "it needs the rights of root",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}


class OperatorError(Exception):
    """An error that the operator can correct; its text is printed."""


def describe_database_error(error: BaseException, variable: str, url: str) -> str:
    """Return a line about an error of the database that an environment variable names."""
    return f"{variable}: {_describe_connection(error, url) or _describe_rights(error, url)}"


def _describe_connection(error: BaseException, url: str) -> str | None:
    """Return the message of an error before the database was open. None: it is another error."""
    place, name = _place_of(url), urlsplit(url).path.strip("/") or _user_of(url)
    match error:
        case asyncpg.ClientConfigurationError():
            form = "The URL must have the form postgresql://user:password@host:port/database."
            return f"{first_line(error).removesuffix('.')}. {form}"
        case ConnectionRefusedError():
            return f"No PostgreSQL answers at {place}. Start it, or correct host and port."
        case socket.gaierror():
            return f"The host {urlsplit(url).hostname} is unknown. Correct its name."
        case TimeoutError():
            return f"PostgreSQL at {place} does not answer. Check host, port and firewall."
        case ssl.SSLCertVerificationError():
            return (
                f"The certificate of PostgreSQL at {place} is not trusted "
                f"({error.verify_message}). Correct the host, or sslrootcert in the URL."
            )
        case ConnectionError() if "rejected SSL upgrade" in str(error):
            return (
                f"No PostgreSQL with TLS answers at {place}. "
                "Correct host and port, or sslmode in the URL."
            )
        case OSError(strerror=str(why)):
            return f"PostgreSQL at {place} cannot be reached ({why}). Check host and network."
        case asyncpg.InvalidCatalogNameError():
            return (
                f'There is no database "{name}" at {place}. Correct its name, or create it: '
                f'create database "{name}";'
            )
        case asyncpg.InvalidAuthorizationSpecificationError():
            return f"PostgreSQL refuses the login {_user_of(url)}. Correct user and password."
        case asyncpg.TooManyConnectionsError():
            return (
                "PostgreSQL has no free connection. Lower POOL_SIZE, or raise max_connections or "
                "the connection limit of the login."
            )
        case asyncpg.CannotConnectNowError():
            return "PostgreSQL is starting or shutting down. Try again in a moment."
    return None


def _describe_rights(error: BaseException, url: str) -> str:
    """Return the message of an error of an open database, with the statement that cures it."""
    text, name = first_line(error), urlsplit(url).path.strip("/")
    for pattern, wording in _RIGHTS:
        if found := re.search(pattern, text):
            return wording.format(user=_user_of(url), name=name, **found.groupdict())
    return f"The database cannot be used: {text}"


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
    except OSError as error:
        why = error.strerror
    else:
        why = None if os.access(path, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    if why:
        raise OperatorError(
            f"The folder {path} cannot be used: {why}. Correct its rights, or set {variable} to "
            "another folder."
        )


def _place_of(url: str) -> str:
    """Return host and port of a URL, without user and password."""
    return urlsplit(url).netloc.rpartition("@")[2] or "the local socket"


def _user_of(url: str) -> str:
    return urlsplit(url).username or "of this user"


def first_line(error: BaseException) -> str:
    """Return the message of PostgreSQL without its details and hints."""
    return str(error).partition("\n")[0] or type(error).__name__
