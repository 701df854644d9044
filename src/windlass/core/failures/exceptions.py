"""Owns safe questions about an exception of a user's: by its type, whatever its attributes do.

`isinstance` asks an object for its `__class__`, and a class may make a property of that, or of
`__cause__`, which raises. Nothing here runs code of the exception.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeGuard, TypeVar

E = TypeVar("E")


def is_a(error: object, *kinds: type[E]) -> TypeGuard[E]:
    """Return whether an object is of one of these types, or of one that is derived from them."""
    return issubclass(type(error), kinds)


def members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions in a group; none if it is no group."""
    if not is_a(error, BaseExceptionGroup):
        return ()
    inside: tuple[BaseException, ...] = _read(BaseExceptionGroup, "exceptions", error)
    return inside


def cause_of(error: BaseException) -> BaseException | None:
    """Return the exception that led to this one, unless its context is suppressed."""
    cause: BaseException | None = _read(BaseException, "__cause__", error)
    if cause is None and not _read(BaseException, "__suppress_context__", error):
        cause = _read(BaseException, "__context__", error)
    return cause


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return where an exception was raised."""
    frames: TracebackType | None = _read(BaseException, "__traceback__", error)
    return frames


def _read(owner: type, name: str, error: BaseException) -> Any:
    return owner.__dict__[name].__get__(error)
