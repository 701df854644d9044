"""Owns `Breaker`: the definition of a circuit breaker by users; its record is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.failures.error_classes import ErrorClass, leaves
from windlass.core.failures.exceptions import is_a
from windlass.core.values.durations import Duration, duration
from windlass.core.values.names import check_name

OWN = "kind:"
"""The prefix of the breakers that kinds have of their own."""
Trigger = type[BaseException] | ErrorClass
"""The errors that count as failures: exceptions, or error classes."""
_COUNTED = (ErrorClass.SYSTEM, ErrorClass.TRANSIENT)


class Rule(Struct, frozen=True, kw_only=True):
    """The rule by which a breaker opens, half-opens and closes."""

    name: str
    failures: int = 5
    cooldown: timedelta = timedelta(seconds=60)
    probes: int = 1
    on: tuple[Trigger, ...] = _COUNTED

    def counts(self, error: BaseException, error_class: ErrorClass) -> bool:
        if error_class in self.on:
            return True
        named = tuple(each for each in self.on if isinstance(each, type))
        return any(is_a(leaf, *named) for leaf in leaves(error))


def own_rule(kind: str) -> Rule:
    """Return the rule of a kind's own breaker: system errors count."""
    return Rule(name=OWN + kind, on=(ErrorClass.SYSTEM,))


class Breaker:
    """Keeps jobs from starting while something that they all depend on is down.

    After `failures` failures in a row, on whichever worker, it opens, and nothing starts. When the
    `cooldown` is over it lets `probes` jobs run at a time, and no more. After as many successes it
    closes; the first failure opens it again. `on` selects the failures that count: exceptions,
    classes of errors, or both. A timeout is a transient `TimeoutError`.

    Raises:
        ConfigError: a value makes no sense.

    Example:
        `@app.job(breaker=Breaker("stripe", failures=5, cooldown="60s"))`, and for other kinds that
        depend on the same, `breaker="stripe"`
    """

    __slots__ = ("rule",)

    def __init__(
        self,
        name: str,
        *,
        failures: int = 5,
        cooldown: Duration = "60s",
        probes: int = 1,
        on: Trigger | Sequence[Trigger] = _COUNTED,
    ) -> None:
        self.rule = Rule(
            name=_name(name),
            failures=_count(name, "failures", failures),
            cooldown=_cooldown(name, cooldown),
            probes=_count(name, "probes", probes),
            on=_triggers(name, on),
        )

    def __repr__(self) -> str:
        return f"Breaker({self.rule.name!r})"


def _name(name: Any) -> str:
    try:
        check_name("breaker", name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if name.startswith(OWN):
        raise ConfigError(
            f"breaker {name!r}: names that start with {OWN!r} are reserved for the breakers of "
            "kinds; choose another name"
        )
    return str(name)


def _count(name: str, option: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(
            f"breaker {name!r}: {option} must be a whole number of at least 1, got {count!r}"
        )
    return count


def _cooldown(name: str, given: Any) -> timedelta:
    try:
        span = duration(given, "cooldown")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"breaker {name!r}: {error}") from None
    if not span:
        raise ConfigError(
            f"breaker {name!r}: cooldown must be greater than zero; write it like cooldown='60s'"
        )
    return span


def _triggers(name: str, on: Any) -> tuple[Trigger, ...]:
    given = tuple(on) if isinstance(on, tuple | list | set | frozenset) else (on,)
    for each in given:
        is_error = isinstance(each, type) and issubclass(each, BaseException)
        if not is_error and not isinstance(each, ErrorClass):
            raise ConfigError(
                f"breaker {name!r}: on= must list exceptions and error classes, got {each!r}"
            )
    if not given:
        raise ConfigError(
            f"breaker {name!r}: on= is empty, so it would never open; leave on= out, or list errors"
        )
    return given
