"""Errors that come from the state of PostgreSQL and not from a value."""

import asyncpg

from service.errors import Unavailable, describe_error, format_traceback

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
