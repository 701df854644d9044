"""Owns the registered providers: the type and the needs of each, and the order of opening."""

from __future__ import annotations

import inspect
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.payloads.annotations import hints_of
from windlass.handlers.provided.injection import (
    Need,
    is_too_general,
    needs_of,
    plain,
    refuse_dependencies,
    show,
)

_YIELDING = (
    abc.AsyncGenerator, abc.AsyncIterable, abc.AsyncIterator, abc.Generator, abc.Iterable,
    abc.Iterator,
)  # fmt: skip
Overrides = Mapping[Callable[..., Any], Callable[..., Any]]
"""What is called instead of which dependency."""


class Overriding(Protocol):
    """What has overrides of its own, as an application of FastAPI does."""

    dependency_overrides: dict[Callable[..., Any], Callable[..., Any]]


class Provider(Struct, frozen=True, kw_only=True, eq=False):
    """A function that opens a value, its type, and what it needs itself."""

    name: str
    function: Callable[..., Any]
    type: Any
    needs: tuple[Need, ...]

    def __str__(self) -> str:
        return f"{self.name} ({show(self.type)})"

    @property
    def bases(self) -> tuple[type, ...]:
        """The classes that the value inherits from, its own among them."""
        return getattr(typing.get_origin(self.type) or self.type, "__mro__", ())


class Providers:
    """The providers of an app, not opened; one for each type. Also the overrides of dependencies.

    The owner is the app: dependencies that give the app of a request give this one in a run.
    """

    def __init__(self, owner: object = None) -> None:
        self._providers: list[Provider] = []
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """What is called instead of which dependency."""
        self._followed: list[Overriding] = []

        async def give_owner() -> object:
            return owner

        self._give_owner = give_owner

    def __iter__(self) -> Iterator[Provider]:
        """Iterate over the providers in order of registration."""
        return iter(self._providers)

    def add(self, function: Callable[..., Any]) -> None:
        """Register a function that opens a value.

        Raises: ConfigError: its types cannot be determined, or there is a provider of that type.
        """
        if not inspect.isroutine(function):
            raise ConfigError(
                f"a provider must be a function that returns or yields a value, got {function!r}"
            )
        name = function.__name__
        refuse_dependencies(f"the provider {name}", function)
        _refuse_arguments(name, function)
        given = _type_given(name, function)
        for other in self._providers:
            if other.type == given:
                raise ConfigError(
                    f"two providers have the type {show(given)}: {other.name} and {name}; "
                    f'give one its own type: Second = NewType("Second", {show(given)})'
                )
        provider = Provider(name=name, function=function, type=given, needs=needs_of(function))
        self._providers.append(provider)

    def find(self, wanted: Any, asked: str) -> Provider:
        """Return the provider of this type, or else the only one of a subclass.

        Raises: ConfigError: there is none, or several; the error begins with `asked`.
        """
        for provider in self._providers:
            if provider.type == wanted:
                return provider
        heirs = [provider for provider in self._providers if wanted in provider.bases]
        if len(heirs) == 1:
            return heirs[0]
        if heirs:
            several = ", ".join(map(str, heirs))
            raise ConfigError(
                f"{asked}, but several providers match: {several}; ask for a more specific type"
            )
        raise ConfigError(
            f"{asked}, but no provider has that type; known providers: "
            f"{', '.join(map(str, self._providers)) or 'none'}; is the module with its "
            "@app.provide imported?"
        )

    def check(self, asker: str, needs: tuple[Need, ...]) -> None:
        """Check that all needed providers exist.

        Raises: ConfigError: a provider does not exist; the error names all of them.
        """
        for need in needs:
            self.find(need.type, f"{asker} asks for `{need}`")

    def overrides_in_force(self) -> Overrides:
        """Return the overrides: those of the app, and before them those that it follows."""
        found: dict[Callable[..., Any], Callable[..., Any]]
        found = dict.fromkeys(_GIVING_APP, self._give_owner) | self.overrides
        for followed in self._followed:
            found |= followed.dependency_overrides
        return found

    def follow(self, other: Overriding) -> None:
        """Use the overrides of something else, too; the last one followed wins."""
        self._followed.append(other)

    @contextmanager
    def following(self, other: Overriding) -> Iterator[None]:
        """Use the overrides of something else, too, for the length of a block."""
        self.follow(other)
        try:
            yield
        finally:
            self._followed.remove(other)

    def in_order(self) -> list[Provider]:
        """Return the providers so that each follows those that it needs, otherwise as registered.

        Raises: ConfigError: a provider needs one that does not exist, or they need each other in a
        circle.
        """
        ordered: list[Provider] = []
        for provider in self._providers:
            self._put(provider, ordered, ())
        return ordered

    def _put(self, provider: Provider, ordered: list[Provider], path: tuple[Provider, ...]) -> None:
        if provider in ordered:
            return
        if provider in path:
            circle = [*path[path.index(provider) :], provider]
            raise ConfigError(
                f"providers depend on each other: {' -> '.join(each.name for each in circle)}; "
                "remove the cycle"
            )
        for need in provider.needs:
            needed = self.find(need.type, f"the provider {provider.name} asks for `{need}`")
            self._put(needed, ordered, (*path, provider))
        ordered.append(provider)


_GIVING_APP: set[Callable[..., Any]] = set()


def gives_app(function: Callable[..., Any]) -> None:
    """Let a dependency that gives the app of a request give the app of the run in a handler."""
    _GIVING_APP.add(function)


def _refuse_arguments(name: str, function: Callable[..., Any]) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise ConfigError(
                f"the provider {name} takes {parameter.name!r}, which cannot be provided; a "
                f"provider may take provided values, as `{parameter.name}: Pool = Inject`, or "
                "defaults"
            )


def _type_given(name: str, function: Callable[..., Any]) -> Any:
    hint = hints_of(function, extras=False).get("return", Any)
    yielding = typing.get_origin(hint) in _YIELDING
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        if not yielding:
            raise ConfigError(
                f"the provider {name} is a generator, so its annotation must be `-> "
                f"AsyncIterator[Pool]` or `-> Iterator[Pool]`, got `{show(hint)}`"
            )
        hint = typing.get_args(hint)[0]
    elif yielding:
        raise ConfigError(
            f"the provider {name} is annotated as an iterator but does not yield; leave out "
            "@asynccontextmanager, or annotate the type it returns"
        )
    given = plain(hint)
    if is_too_general(given):
        raise ConfigError(
            f"the provider {name} has no return annotation; add it, as in `def "
            f"{function.__name__}() -> Pool`, since handlers ask for values by type"
        )
    return given
