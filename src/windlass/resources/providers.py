"""Owns the registered resources: what each gives and needs, in what order they are opened."""

from __future__ import annotations

import inspect
import typing
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.hints import hints_of
from windlass.resources.asking import Need, needs_of, plain, says_nothing, show

_YIELDING = (
    abc.AsyncGenerator, abc.AsyncIterable, abc.AsyncIterator, abc.Generator, abc.Iterable,
    abc.Iterator,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Provider:
    """A function that opens a resource, the type of what it gives, and what it needs for that."""

    name: str
    function: Callable[..., Any]
    type: Any
    needs: tuple[Need, ...]

    def __str__(self) -> str:
        return f"{self.name} ({show(self.type)})"

    @property
    def bases(self) -> tuple[type, ...]:
        """The classes that the resource inherits from, its own among them."""
        return getattr(typing.get_origin(self.type) or self.type, "__mro__", ())


class Providers:
    """The resources of an app, none of them open. There is one for each type."""

    def __init__(self) -> None:
        self._providers: list[Provider] = []

    def __iter__(self) -> Iterator[Provider]:
        """Iterate over them as they were registered."""
        return iter(self._providers)

    def add(self, function: Callable[..., Any]) -> None:
        """Register a function that gives a resource.

        Raises:
            ConfigError: what it gives or takes cannot be known, or there is one of that type.
        """
        if not inspect.isroutine(function):
            raise ConfigError(f"a resource is a function that gives it, and {function!r} is none")
        name = function.__name__
        _refuse_arguments(name, function)
        given = _type_given(name, function)
        for other in self._providers:
            if other.type == given:
                raise ConfigError(
                    f"two resources give {show(given)}: {other.name} and {name}; tell them apart "
                    f'by type: Second = NewType("Second", {show(given)}), given by one of them'
                )
        provider = Provider(name=name, function=function, type=given, needs=needs_of(function))
        self._providers.append(provider)

    def find(self, wanted: Any, asked: str) -> Provider:
        """Return who gives this very type, else the only one that gives a subclass of it.

        Raises:
            ConfigError: nobody does, or several; the error begins with what was `asked`.
        """
        for provider in self._providers:
            if provider.type == wanted:
                return provider
        heirs = [provider for provider in self._providers if wanted in provider.bases]
        if len(heirs) == 1:
            return heirs[0]
        if heirs:
            several = ", ".join(map(str, heirs))
            raise ConfigError(f"{asked}, and several resources are that: {several}; name one type")
        raise ConfigError(
            f"{asked}, and no resource gives that; there are: "
            f"{', '.join(map(str, self._providers)) or 'none'}; is the module with its "
            "@app.resource imported?"
        )

    def check(self, asker: str, needs: tuple[Need, ...]) -> None:
        """Make sure that somebody can be given what it needs.

        Raises:
            ConfigError: there is no resource for it; the error names all of that.
        """
        for need in needs:
            self.find(need.type, f"{asker} asks for `{need}`")

    def in_order(self) -> list[Provider]:
        """Return them so that each comes after those that it needs, else as registered.

        Raises:
            ConfigError: one needs what is not there, or they need each other in a circle.
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
                f"resources need each other: {' -> '.join(each.name for each in circle)}; "
                "none of them can be opened first"
            )
        for need in provider.needs:
            needed = self.find(need.type, f"the resource {provider.name} asks for `{need}`")
            self._put(needed, ordered, (*path, provider))
        ordered.append(provider)


def _refuse_arguments(name: str, function: Callable[..., Any]) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise ConfigError(
                f"the resource {name} takes {parameter.name!r}, which nobody will give: a resource "
                f"takes other resources, as `{parameter.name}: Pool = Inject`, or defaults"
            )


def _type_given(name: str, function: Callable[..., Any]) -> Any:
    hint = hints_of(function, extras=False).get("return", Any)
    yielding = typing.get_origin(hint) in _YIELDING
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        if not yielding:
            raise ConfigError(
                f"the resource {name} is a generator, so its annotation is `-> AsyncIterator[Pool]`"
                f" or `-> Iterator[Pool]`, and not `{show(hint)}`"
            )
        hint = typing.get_args(hint)[0]
    elif yielding:
        raise ConfigError(
            f"the resource {name} is annotated as an iterator and does not yield: leave out "
            "@asynccontextmanager, or annotate what it returns"
        )
    given = plain(hint)
    if says_nothing(given):
        raise ConfigError(
            f"the resource {name} does not say what it gives: annotate it, as in "
            f"`def {function.__name__}() -> Pool`; handlers ask for resources by their types"
        )
    return given
