"""Owns how the signature of a dependency is read: what it needs, and how it is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.payloads.annotations import parameter_hints_of
from windlass.handlers.any_context import AnyContext
from windlass.handlers.context import Context
from windlass.handlers.provided import Inject, Need, needs_of
from windlass.handlers.provided.injection import annotated, mark_of, name_of, plain, show
from windlass.handlers.sync_context import SyncContext

_CACHED = 1024
"""How many dependencies are kept as they were read."""
_OF_REQUESTS = ("starlette", "fastapi", "litestar")
"""Packages whose types only a web request has."""


class Style(Enum):
    """How a dependency is called."""

    FUNCTION = "def"
    COROUTINE = "async def"
    GENERATOR = "def with yield"
    ASYNC_GENERATOR = "async def with yield"

    @property
    def is_async(self) -> bool:
        """Whether it is called in the event loop."""
        return self in (Style.COROUTINE, Style.ASYNC_GENERATOR)

    @property
    def has_end(self) -> bool:
        """Whether its second half closes what it gives."""
        return self in (Style.GENERATOR, Style.ASYNC_GENERATOR)


class Asked(Struct, frozen=True, kw_only=True):
    """A parameter that is the value of a dependency."""

    parameter: str
    function: Callable[..., Any]
    is_shared: bool
    """Whether all that ask for the dependency in one run get the same value."""


class Dependency(Struct, frozen=True, kw_only=True):
    """A function whose value is injected, and what it needs itself."""

    function: Callable[..., Any]
    name: str
    style: Style
    asked: tuple[Asked, ...]
    needs: tuple[Need, ...]
    context: str | None
    """The parameter for the context of the run."""
    missing: tuple[str, ...]
    """The parameters that only a web request has, as they are written."""


@functools.lru_cache(maxsize=_CACHED)
def read_dependency(function: Callable[..., Any]) -> Dependency:
    """Return what a dependency needs, and how it is called.

    Raises: ConfigError: its annotations cannot be read, or ask for the wrong context.
    """
    hints = parameter_hints_of(annotated(function))
    style = _style(function)
    context: str | None = None
    missing: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any)
        if parameter.default is Inject or mark_of(parameter, hint) is not None:
            continue
        if hint in (AnyContext, Context, SyncContext):
            context = _checked_context(function, style, name, hint)
        elif _is_missing(parameter, hint):
            missing.append(f"{name}: {show(plain(getattr(hint, '__origin__', hint)))}")
    return Dependency(
        function=function,
        name=name_of(function),
        style=style,
        asked=asked_by(function, hints),
        needs=needs_of(function),
        context=context,
        missing=tuple(missing),
    )


def asked_by(function: Callable[..., Any], hints: dict[str, Any]) -> tuple[Asked, ...]:
    """Return the dependencies that a function asks for; `hints` are its annotations."""
    asked: list[Asked] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any)
        mark = mark_of(parameter, hint)
        if mark is not None:
            wanted: Any = mark.dependency or getattr(hint, "__origin__", hint)  # `Depends()`
            asked.append(Asked(parameter=name, function=wanted, is_shared=mark.use_cache))
    return tuple(asked)


def _is_missing(parameter: inspect.Parameter, hint: Any) -> bool:
    """Return whether only a web request has the value of a parameter."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return False
    types = (hint, getattr(hint, "__origin__", None))
    marks = (type(each) for each in (parameter.default, *getattr(hint, "__metadata__", ())))
    if any(_is_of_requests(each) for each in (*types, *marks)):
        return True
    return parameter.default is inspect.Parameter.empty


def _is_of_requests(thing: Any) -> bool:
    package = str(getattr(thing, "__module__", "")).partition(".")[0]
    return isinstance(thing, type) and package in _OF_REQUESTS


def _checked_context(function: Callable[..., Any], style: Style, name: str, hint: Any) -> str:
    right = Context if style.is_async else SyncContext
    if hint not in (AnyContext, right):
        kind = "an `async def`" if style.is_async else "a `def`"
        raise ConfigError(
            f"the dependency {name_of(function)}: {name} must be a {right.__name__} in {kind}, got "
            f"{show(hint)}; write `{name}: {right.__name__}`"
        )
    return name


def _style(function: Callable[..., Any]) -> Style:
    while isinstance(function, functools.partial):
        function = function.func
    called: Any = function
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        called = type(function).__call__
    if inspect.isasyncgenfunction(called):
        return Style.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(called):
        return Style.GENERATOR
    return Style.COROUTINE if inspect.iscoroutinefunction(called) else Style.FUNCTION
