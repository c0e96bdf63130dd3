"""Connections to PostgreSQL, and errors that come from its state and not from a value.

A connection ends within DATABASE_SILENCE_SECONDS if the peer vanishes.

PostgreSQL keeps the advisory locks of a session until it knows that the session is over. A process
that dies closes its sockets, and the session ends at once. A host that vanishes (power, network, a
migrated virtual machine) sends neither FIN nor RST, and the kernel sends its first probe only after
two hours by default.

Keepalive probes end an idle connection. tcp_user_timeout ends one with data that the peer has not
acknowledged, such as a notification, for which no probes are sent. A process that is only paused
keeps its session and its locks, because its kernel acknowledges both. For the same reason there is
no idle_session_timeout. None of this applies to Unix sockets, where the kernel sees both ends:
PostgreSQL and this module ignore the settings there.
"""

import socket
from asyncio.trsock import TransportSocket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import asyncpg

from service.config import SILENCE_SECONDS
from service.errors import Unavailable, describe_error, format_traceback

Connection = asyncpg.Connection
Record = asyncpg.Record
UniqueViolationError = asyncpg.UniqueViolationError
#: Smaller oids are assigned in the source of PostgreSQL and mean the same type in every database.
FIRST_GENERATED_OID = 10_000
#: Prepared statements of a connection, more than there are named statements.
MAX_PREPARED = 1000
#: Setting of PostgreSQL for its end of a connection -> the option of the client's socket.
SOCKET_OPTIONS = {
    "tcp_keepalives_idle": "TCP_KEEPIDLE",
    "tcp_keepalives_interval": "TCP_KEEPINTVL",
    "tcp_keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",
}
UNAVAILABLE = "The service is not available for a moment, please try again."
#: Errors while PostgreSQL is away, restarting, or has no free connection. asyncpg raises an
#: InternalClientError for a connection that is cut in the middle of a response.
TRANSIENT_DB_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    Unavailable,
)
#: SQLSTATE classes and codes of transient errors: lost connection, insufficient resources,
#: shutdown, rollback, system error, lock not available, read-only transaction.
TRANSIENT_SQLSTATES = ("08", "53", "57", "40", "58", "55P03", "25006")
#: Transactions that PostgreSQL aborted because of another one, or of a plan that a migration made
#: invalid.
ABORTED_TRANSACTION_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,
)

_warnings: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
_owners: WeakKeyDictionary[Connection, Mapping[str, object]] = WeakKeyDictionary()


class _Connection(asyncpg.Connection):
    """A connection that learns PostgreSQL's own types from other connections of this process.

    asyncpg asks PostgreSQL for the definition of every array type (`bigint[]`), once per
    connection, which takes some milliseconds.
    """

    _known_types: ClassVar[dict[frozenset[int], object]] = {}

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109
    ) -> Any:
        """Return the definitions of types. It overrides a private method, which a test pins."""
        oids = frozenset(typeoids)
        if max(oids) >= FIRST_GENERATED_OID:
            return await super()._introspect_types(typeoids, timeout)
        if oids not in self._known_types:
            self._known_types[oids] = await super()._introspect_types(typeoids, timeout)
        return self._known_types[oids]


def keepalive(silence: int) -> dict[str, int]:
    """Return the limits for a silence of at most `silence` seconds, which are at least 3.

    They have the names of PostgreSQL's settings. 45 seconds mean six probes 5 seconds apart, the
    first after 15 seconds. With six probes a few lost packets do not end a connection.
    """
    idle, interval = max(1, silence // 3), max(1, silence // 9)
    return {
        "tcp_keepalives_idle": idle,
        "tcp_keepalives_interval": interval,
        "tcp_keepalives_count": (silence - idle) // interval,
        "tcp_user_timeout": silence * 1000,
    }


async def connect(
    url: str, settings: Mapping[str, str], *, silence: int = SILENCE_SECONDS, **timeouts: Any
) -> Connection:
    """Return a connection with server settings and limited silence.

    Statements stay prepared as long as it is open. `timeouts` are those of asyncpg.connect.
    """
    limits = keepalive(silence)
    connection = await asyncpg.connect(
        url,
        server_settings={**settings, **{name: str(limit) for name, limit in limits.items()}},
        connection_class=_Connection,
        statement_cache_size=MAX_PREPARED,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        **timeouts,
    )
    try:
        _bound_silence(limits, connection)
        connection.add_log_listener(_note_warning)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _bound_silence(limits: Mapping[str, int], connection: Connection) -> None:
    """Set the limits on the client's end, as far as the system supports them."""
    client_socket = get_socket(connection)
    if client_socket.family == getattr(socket, "AF_UNIX", None):
        return
    client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, limit in limits.items():
        if option := getattr(socket, SOCKET_OPTIONS[name], None):
            client_socket.setsockopt(socket.IPPROTO_TCP, option, limit)


@contextmanager
def owned_by(connection: Connection, variables: Mapping[str, object]) -> Iterator[None]:
    """Note the owner of the rows that statements on a connection read and write in the block."""
    _owners[connection] = variables
    try:
        yield
    finally:
        del _owners[connection]


def get_owner(connection: Connection) -> Mapping[str, object]:
    """Return the variables of the owner that was noted for a connection, or none."""
    return _owners.get(connection, {})


def count_warnings(connection: Connection) -> int:
    return _warnings.get(connection, 0)


def _note_warning(connection: Connection, message: asyncpg.PostgresLogMessage) -> None:
    if message.as_dict().get("severity_en") == "WARNING":
        _warnings[connection] = count_warnings(connection) + 1


def get_socket(connection: Connection) -> TransportSocket:
    """Return the socket of a connection, by a private name of asyncpg that a test pins."""
    return connection._transport.get_extra_info("socket")


def is_transient(error: BaseException) -> bool:
    """Return whether an error comes from the state of the database and not from a value."""
    if isinstance(error, asyncpg.PostgresError):
        return (getattr(error, "sqlstate", None) or "").startswith(TRANSIENT_SQLSTATES)
    return isinstance(error, TRANSIENT_DB_ERRORS)


def is_interruption(error: BaseException) -> bool:
    """Return whether the database interrupted work that did not cause the interruption.

    A statement that was cancelled because it ran too long may have caused it.
    """
    return is_transient(error) and not isinstance(error, asyncpg.QueryCanceledError)


def describe_or_trace(error: BaseException) -> str:
    """Return an error for a log: its traceback, unless the database interrupted the work."""
    return describe_error(error) if is_interruption(error) else format_traceback(error)


def is_aborted(error: BaseException) -> bool:
    """Return whether PostgreSQL has certainly aborted the transaction, so that it can be repeated.

    A session that a shutdown ends reports that only before its commit. asyncpg raises an error of
    the connection then, whose cause is the report.
    """
    reports = (error, error.__cause__)
    if any(isinstance(report, asyncpg.AdminShutdownError) for report in reports):
        return True
    return isinstance(error, ABORTED_TRANSACTION_ERRORS)
