"""Owns the plan of a run's dependencies: which functions are called, in which order, with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.handlers.dependencies.reading import Asked, Dependency, read_dependency
from windlass.handlers.provided import Need, Overrides
from windlass.handlers.provided.injection import name_of


class Call(Struct, frozen=True, kw_only=True):
    """One call of a dependency; its arguments are the values of earlier calls, by number."""

    dependency: Dependency
    arguments: Mapping[str, int]


class Plan(Struct, frozen=True, kw_only=True, dict=True):
    """The calls of a run in order, and which of their values are the handler's parameters."""

    calls: tuple[Call, ...]
    parameters: Mapping[str, int]

    @cached_property
    def early(self) -> frozenset[int]:
        """The calls that have to be made in the event loop, and those that they need."""
        found: set[int] = set()
        for number in range(len(self.calls) - 1, -1, -1):
            call = self.calls[number]
            if number in found or call.dependency.style.is_async:
                found |= {number, *call.arguments.values()}
        return frozenset(found)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The provided values that the dependencies ask for."""
        return tuple(need for call in self.calls for need in call.dependency.needs)


def make_plan(
    asker: str, asked: tuple[Asked, ...], overrides: Overrides, *, has_context: bool
) -> Plan:
    """Return the plan of a handler's dependencies.

    Raises: ConfigError: one needs what only a web request has, or the context of a batch, or they
    need each other in a circle.
    """
    planner = _Planner(asker, overrides, has_context=has_context)
    parameters = {each.parameter: planner.number_of(each, ()) for each in asked}
    return Plan(calls=tuple(planner.calls), parameters=parameters)


class _Planner:
    def __init__(self, asker: str, overrides: Overrides, *, has_context: bool) -> None:
        self._asker = asker
        self._overrides = overrides
        self._has_context = has_context
        self._numbers: dict[Callable[..., Any], int] = {}
        self.calls: list[Call] = []

    def number_of(self, asked: Asked, path: tuple[Callable[..., Any], ...]) -> int:
        """Return the number of the call for a parameter; the call is added if there is none."""
        function = self._overrides.get(asked.function, asked.function)
        if asked.is_shared and function in self._numbers:
            return self._numbers[function]
        path = (*path, function)
        if function in path[:-1]:
            circle = " -> ".join(map(name_of, path[path.index(function) :]))
            raise ConfigError(
                f"{self._asker}: dependencies need each other: {circle}; remove the cycle"
            )
        dependency = read_dependency(function)
        self._check(dependency, path)
        arguments = {each.parameter: self.number_of(each, path) for each in dependency.asked}
        self.calls.append(Call(dependency=dependency, arguments=arguments))
        number = len(self.calls) - 1
        self._numbers.setdefault(function, number)
        return number

    def _check(self, dependency: Dependency, path: tuple[Callable[..., Any], ...]) -> None:
        name = dependency.name
        through = "".join(f", which {name_of(each)} needs," for each in reversed(path[:-1]))
        if dependency.missing:
            raise ConfigError(
                f"{self._asker}: the dependency {name}{through} takes "
                f"`{', '.join(dependency.missing)}`, which only a web request has; move what jobs "
                "need into a dependency without it, or give jobs another one, before this "
                f"handler: app.dependency_overrides[{name}] = ..."
            )
        if dependency.context is not None and not self._has_context:
            raise ConfigError(
                f"{self._asker}: the dependency {name}{through} takes the context of a run, but a "
                "batch has many jobs; leave it out"
            )
