"""Owns how a function asks for provided values: by parameters whose default is `Inject`."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from windlass.core.errors import ConfigError
from windlass.core.payloads.annotations import hints_of


class _Injected:
    """The default of a parameter that is a provided value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Inject"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name!r} is injected only by a worker and was left out of a direct call; pass it by "
            "name"
        )


Inject: Any = _Injected()
"""The default that makes a parameter a provided value: `db: Pool = Inject`."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """A parameter that is to be a provided value, and its type."""

    parameter: str
    type: Any

    def __str__(self) -> str:
        return f"{self.parameter}: {show(self.type)}"


def needs_of(function: Callable[..., Any]) -> tuple[Need, ...]:
    """Return the provided values that a function asks for.

    Raises: ConfigError: a parameter has no annotation, or one that cannot be read.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()  # A function written in C cannot have such a default.
    asked = [each for each in parameters if each.default is Inject]
    if not asked:
        return ()
    hints = hints_of(_annotated(function), extras=False)
    return tuple(_need(function, each, hints.get(each.name, Any)) for each in asked)


def plain(hint: Any) -> Any:
    """Return the type of a provided value: `X | None` means X, since a worker has it open."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not types.NoneType]
        if len(rest) == 1:
            return rest[0]
    return hint


def is_too_general(hint: Any) -> bool:
    """Return whether a type cannot identify a provided value."""
    return hint in (Any, object, None, types.NoneType)


def show(hint: Any) -> str:
    """Return a type as a user would write it."""
    return hint.__qualname__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function for a message."""
    return str(getattr(function, "__qualname__", repr(function)))


def _need(function: Callable[..., Any], parameter: inspect.Parameter, hint: Any) -> Need:
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise ConfigError(
            f"{name_of(function)} takes the provided value {parameter.name!r} as positional-only; "
            "provided values are passed by name"
        )
    if is_too_general(plain(hint)):
        raise ConfigError(
            f"{name_of(function)} asks for the provided value {parameter.name!r} without a type; "
            f"write `{parameter.name}: Pool = Inject`"
        )
    return Need(parameter=parameter.name, type=plain(hint))


def _annotated(function: Any) -> Any:
    """Return the object that has the annotations: the function, or the one inside a callable."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__
