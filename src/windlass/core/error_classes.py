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
    Permanent,
    RetryAfter,
    StoreBusy,
    StoreUnavailable,
)


class ErrorClass(StrEnum):
    """What an error says about trying again, and so what becomes of the job.

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
"""The class of an exception, or who tells it from the exception; None leaves it to others."""
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
        Permanent: ErrorClass.PERMANENT,
        PayloadError: ErrorClass.PERMANENT,
        RetryAfter: ErrorClass.TRANSIENT,
    }
)
"""What a handler says by raising it; no table says otherwise."""
_KNOWN: Classes = MappingProxyType(
    {
        MemoryError: ErrorClass.RESOURCE,
        MemoryExceeded: ErrorClass.RESOURCE,
        OSError: _by_errno,
        StoreUnavailable: ErrorClass.SYSTEM,
        # Charged: a handler that waits for a lock which it holds itself would wait for ever.
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
"""Exceptions of libraries that need not be installed, by the names that they give themselves.

None is a system error: that a connection was refused may be the fault of an address in the payload,
which would then be tried for ever, uncharged. Whoever knows the address says so in a table.
"""


def class_of(error: BaseException, *tables: Classes) -> ErrorClass:
    """Return the class of an error by the first of the tables that has a verdict.

    Before them goes what handlers say by `Permanent` and `RetryAfter`, after them what Windlass
    knows; what nobody knows is transient. A group is in the gravest class of its exceptions.
    """
    searched = (_SAID, *tables, _KNOWN)
    found = {_class_of_one(leaf, searched) for leaf in leaves(error)}
    return next(each for each in _GRAVEST_FIRST if each in found)


def checked_classes(classes: Mapping[Any, Any]) -> dict[type[BaseException], Verdict]:
    """Return a copy of a table that a user wrote.

    Raises:
        ConfigError: there is something in it that is neither an exception nor a class for one.
    """
    for error, verdict in classes.items():
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise ConfigError(f"only exceptions have an error class, and {error!r} is none")
        if isinstance(verdict, type) or not (isinstance(verdict, ErrorClass) or callable(verdict)):
            raise ConfigError(
                f"{verdict!r} is no error class for {error.__qualname__}; give one, as in "
                "ErrorClass.SYSTEM, or a function that takes the exception and returns one"
            )
    return dict(classes)


def reached(first: Classes, second: Classes) -> Iterator[Verdict]:
    """Return the verdicts that an error can meet where one table goes before another.

    What the first one says of an exception, for certain, holds for all that are derived from it.
    """
    yield from first.values()
    certain = tuple(without_functions(first))
    yield from (verdict for error, verdict in second.items() if not issubclass(error, certain))


def without_functions(classes: Classes) -> Classes:
    """Return a table without the verdicts that a user's code finds."""
    return {error: each for error, each in classes.items() if isinstance(each, ErrorClass)}


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Walk an error and, if it is a group, everything in it."""
    waiting = [error]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += reversed(each.exceptions)


def lineage(leaf: BaseException) -> Iterator[type[BaseException]]:
    """Walk the classes by which an exception is looked up, the nearest first.

    A group itself is known only as a group: as an `Exception` it would hide what is in it.
    """
    top = BaseExceptionGroup if isinstance(leaf, BaseExceptionGroup) else BaseException
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
