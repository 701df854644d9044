"""Owns how a function asks for provided values and dependencies: by parameters with `Inject`."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, NoReturn, TypeGuard

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.payloads.annotations import parameter_hints_of


class _Injected:
    """The default of a parameter that a worker fills."""

    __slots__ = ()

    def __call__(self, dependency: Callable[..., Any]) -> Any:
        """Let a parameter be the value of a function, which each run calls: `Inject(get_session)`.

        Raises: ConfigError: it cannot be called.
        """
        if not callable(dependency):
            raise ConfigError(
                f"Inject(...) must be given a function that returns or yields a value, got "
                f"{dependency!r}"
            )
        return InjectedFrom(dependency)

    def __repr__(self) -> str:
        return "Inject"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name!r} is injected only by a worker and was left out of a direct call; pass it by "
            "name"
        )


class InjectedFrom(_Injected):
    """The mark of a parameter that is the value of a dependency: `Inject(get_session)`."""

    __slots__ = ("dependency",)
    use_cache = True

    def __init__(self, dependency: Callable[..., Any]) -> None:
        self.dependency: Callable[..., Any] | None = dependency

    def __repr__(self) -> str:
        return "Inject(...)" if self.dependency is None else f"Inject({name_of(self.dependency)})"


Inject: Any = _Injected()
"""The default of a parameter that the worker fills.

`db: Pool = Inject` is a provided value, and `session: Session = Inject(get_session)` the value of a
dependency; so is `session: Annotated[Session, Depends(get_session)] = Inject`.
"""


class Need(Struct, frozen=True, kw_only=True):
    """A parameter that is to be a provided value, and its type."""

    parameter: str
    type: Any

    def __str__(self) -> str:
        return f"{self.parameter}: {show(self.type)}"


def mark_of(parameter: inspect.Parameter, hint: Any) -> InjectedFrom | None:
    """Return the mark of a parameter that is the value of a dependency; None if it has none.

    That is `Inject(get_session)`, or what has its shape: `Depends(get_session)` of FastAPI. It is
    the default of the parameter, or in its `Annotated`.
    """
    if _is_mark(parameter.default):
        return parameter.default
    marks = [each for each in getattr(hint, "__metadata__", ()) if _is_mark(each)]
    return marks[-1] if marks else None


def is_injected(parameter: inspect.Parameter, hint: Any) -> bool:
    """Return whether a worker fills the parameter, so that it is no part of the payload."""
    return parameter.default is Inject or mark_of(parameter, hint) is not None


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
    marked = parameter_hints_of(annotated(function))
    asked = [each for each in asked if mark_of(each, marked.get(each.name)) is None]
    hints = parameter_hints_of(annotated(function), extras=False)
    return tuple(_need(function, each, hints.get(each.name, Any)) for each in asked)


def refuse_dependencies(what: str, function: Callable[..., Any]) -> None:
    """Check that a function which belongs to no run asks for no dependencies.

    Raises: ConfigError: it asks for one.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    for parameter in parameters:
        if _is_mark(parameter.default):
            raise ConfigError(
                f"{what} asks for `{parameter.name} = {parameter.default!r}`, but only handlers "
                "and their dependencies have dependencies; ask for a provided value, as "
                f"`{parameter.name}: Pool = Inject`"
            )


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
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", None)
    return str(name or getattr(type(function), "__qualname__", repr(function)))


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


def annotated(function: Any) -> Any:
    """Return the object that has the annotations: the function, or the one inside a callable."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if inspect.isclass(function):
        return function if is_dataclass(function) else function.__init__
    return function if inspect.isroutine(function) else type(function).__call__


def _is_mark(thing: Any) -> TypeGuard[InjectedFrom]:
    # By its name: `fastapi.params.Depends` is known without an import of FastAPI.
    names = (base.__name__ for base in type(thing).__mro__)
    return isinstance(thing, InjectedFrom) or ("Depends" in names and hasattr(thing, "dependency"))
