"""Owns the meaning of the server's errors: the store's own error for each, with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from windlass.core.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
    WindlassError,
)

UNKNOWN_STATEMENT = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
"""Errors of a session that does not know the prepared statements: it is closed."""
TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure)
_REFUSALS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
)
"""Permanent errors: the same statement would be rejected again."""
_CROWDED = re.compile("too many clients|too many connections|remaining connection slots")


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn psycopg's errors into the store's own errors, which name the remedy."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, location) from error


def translate(error: Exception, location: str) -> WindlassError:
    """Return the store's own error for one of psycopg's."""
    reason = _reason(error)
    if isinstance(
        error,
        errors.UndefinedTable | errors.UndefinedFunction | errors.InvalidSchemaName,
    ):
        return SchemaMismatch(f"{location} has no schema for this release; run: windlass migrate")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreForbidden(f"{location}: {reason}; docs/postgresql.md lists the grants")
    if isinstance(error, UNKNOWN_STATEMENT):
        return StoreUnavailable(
            f"{location}: {reason}; the prepared statements of this session were dropped"
        )
    # A limit that is over once a listener has read its notifications.
    is_clogged = "NOTIFY queue" in reason
    is_refused = isinstance(error, _REFUSALS) and not is_clogged
    if is_refused or "invalid memory alloc request size" in reason:
        return StoreError(f"{location}: {reason}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusy(f"{location}: {reason}; another session holds a lock, try again")
    if isinstance(error, psycopg.OperationalError) and (remedy := _remedy(reason)):
        return StoreRefused(f"{location}: {reason}; {remedy}")
    if isinstance(error, psycopg.OperationalError) and _CROWDED.search(reason):
        limit = "CONNECTION LIMIT" if "connections for" in reason else "max_connections"
        remedy = f"raise {limit}, or let fewer processes connect"
        return StoreUnavailable(f"{location}: {reason}; {remedy}")
    return StoreUnavailable(f"{location}: {reason}")


def _reason(error: Exception) -> str:
    """Return the line that names the problem; with several hosts, one that has a remedy."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(filter(_remedy, lines), lines[0] if lines else type(error).__qualname__)


def _remedy(reason: str) -> str:
    """Return the remedy for an error that waiting does not change, or an empty text."""
    if "authentication failed" in reason or "no password supplied" in reason:
        return "check user and password, in the URL or in ~/.pgpass"
    if 'database "' in reason and "does not exist" in reason:
        return "create it first, with createdb"
    if 'role "' in reason and "does not exist" in reason:
        return "create it first, with createuser, or name another user in the URL"
    if "pg_hba.conf" in reason:
        return "let the server accept this user from this host, in its pg_hba.conf"
    if "does not support SSL" in reason:
        return "set up TLS on the server, or leave out sslmode in the URL"
    return ""
