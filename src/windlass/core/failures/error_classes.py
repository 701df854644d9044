"""Owns the classes of errors: which exception is in which, by tables that users extend."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from windlass.core.errors import (
    ConfigError,
    MemoryExceeded,
    PayloadError,
    PermanentError,
    RetryAfter,
    StoreBusy,
    StoreUnavailable,
)
from windlass.core.failures.exceptions import is_a, members


class ErrorClass(StrEnum):
    """The meaning of an error for retries, and so for the job.

    *Transient* errors may pass by themselves: the job is retried by its policy. *Permanent* ones do
    not: the job is dead at once. *System* errors are not the job's fault, since something that it
    depends on is down: it waits, and nothing is charged. *Resource* errors mean that the worker's
    machine, or a server, has run out of something: the worker cleans up, and the job is retried
    after a longer wait.
    """

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    SYSTEM = "system"
    RESOURCE = "resource"


Verdict = ErrorClass | Callable[[Any], ErrorClass | None]
"""The class of an exception, or a function that returns it; None leaves it to other tables."""
Classes = Mapping[type[BaseException], Verdict]
"""A table of verdicts, in which the nearest base class decides."""

_GRAVEST_FIRST = (
    ErrorClass.PERMANENT,
    ErrorClass.RESOURCE,
    ErrorClass.SYSTEM,
    ErrorClass.TRANSIENT,
)
_EXHAUSTED = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.ENOSPC,
        errno.EDQUOT,
    }
)


def _by_errno(error: OSError) -> ErrorClass | None:
    return ErrorClass.RESOURCE if error.errno in _EXHAUSTED else None


_SAID: Classes = MappingProxyType(
    {
        PermanentError: ErrorClass.PERMANENT,
        PayloadError: ErrorClass.PERMANENT,
        RetryAfter: ErrorClass.TRANSIENT,
    }
)
"""Exceptions by which a handler decides; no table overrides them."""
_KNOWN: Classes = MappingProxyType(
    {
        MemoryError: ErrorClass.RESOURCE,
        MemoryExceeded: ErrorClass.RESOURCE,
        OSError: _by_errno,
        StoreUnavailable: ErrorClass.SYSTEM,
        # Charged: a handler that waits for a lock of its own would be retried for ever.
        StoreBusy: ErrorClass.TRANSIENT,
    }
)
LIBRARIES: Mapping[str, ErrorClass] = MappingProxyType(
    {
        "asyncpg.exceptions.InsufficientResourcesError": ErrorClass.RESOURCE,
        "psycopg.errors.ConfigurationLimitExceeded": ErrorClass.RESOURCE,
        "psycopg.errors.DiskFull": ErrorClass.RESOURCE,
        "psycopg.errors.InsufficientResources": ErrorClass.RESOURCE,
        "psycopg.errors.OutOfMemory": ErrorClass.RESOURCE,
        "psycopg.errors.TooManyConnections": ErrorClass.RESOURCE,
        "psycopg_pool.PoolTimeout": ErrorClass.RESOURCE,
        "psycopg_pool.TooManyRequests": ErrorClass.RESOURCE,
        "sqlalchemy.exc.TimeoutError": ErrorClass.RESOURCE,
    }
)
"""Exceptions of libraries that need not be installed, by their qualified names.

None is a system error: that a connection was refused may be the fault of an address in the payload,
which would then be retried for ever, uncharged. Users who know the address add it to a table.
"""


def class_of(error: BaseException, *tables: Classes) -> ErrorClass:
    """Return the class of an error by the first of the tables that has a verdict.

    `PermanentError` and `RetryAfter` of handlers come first, the built-in table last; an unknown
    error is transient. A group is in the gravest class of its exceptions.
    """
    searched = (_SAID, *tables, _KNOWN)
    found = {_class_of_one(leaf, searched) for leaf in leaves(error)}
    return next(each for each in _GRAVEST_FIRST if each in found)


def checked_classes(classes: Mapping[Any, Any]) -> dict[type[BaseException], Verdict]:
    """Return a copy of a table that a user wrote."""
    if not isinstance(classes, Mapping):
        raise ConfigError(
            f"errors must be a mapping of exceptions to error classes, got {classes!r}; write "
            "errors={GatewayDown: ErrorClass.SYSTEM}"
        )
    for error, verdict in classes.items():
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise ConfigError(f"errors must map exception classes, got {error!r}")
        if isinstance(verdict, type) or not (isinstance(verdict, ErrorClass) or callable(verdict)):
            raise ConfigError(
                f"the error class of {error.__qualname__} must be an ErrorClass or a function "
                f"that returns one, got {verdict!r}; write ErrorClass.SYSTEM"
            )
    return dict(classes)


def reached(first: Classes, second: Classes) -> Iterator[Verdict]:
    """Return the verdicts that apply where one table goes before another.

    A fixed verdict of the first on an exception holds for everything derived from it.
    """
    yield from first.values()
    certain = tuple(without_functions(first))
    yield from (verdict for error, verdict in second.items() if not issubclass(error, certain))


def without_functions(classes: Classes) -> Classes:
    """Return a table without verdicts by functions of a user."""
    return {error: each for error, each in classes.items() if isinstance(each, ErrorClass)}


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Walk an error and, if it is a group, everything in it."""
    waiting = [error]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += reversed(members(each))


def lineage(leaf: BaseException) -> Iterator[type[BaseException]]:
    """Yield the classes by which an exception is looked up, the nearest first.

    A group itself is known only as a group: as an `Exception` it would hide its members.
    """
    top = BaseExceptionGroup if is_a(leaf, BaseExceptionGroup) else BaseException
    return (base for base in type(leaf).__mro__ if issubclass(base, top))


def _class_of_one(leaf: BaseException, tables: tuple[Classes, ...]) -> ErrorClass:
    for table in tables:
        for base in lineage(leaf):
            verdict = table.get(base)
            if callable(verdict):
                verdict = verdict(leaf)
            if verdict is not None:
                return ErrorClass(verdict)
    for base in lineage(leaf):
        known = LIBRARIES.get(f"{base.__module__}.{base.__qualname__}")
        if known is not None:
            return known
    return ErrorClass.TRANSIENT
