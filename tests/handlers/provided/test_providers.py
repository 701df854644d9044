"""Resources are found by type, ordered by need, and refused when they could not be."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Generic, NewType, Protocol, TypeVar

import pytest

from windlass import ConfigError, Inject
from windlass.handlers.provided import Need, Providers, needs_of

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


class Pool: ...


class Cache: ...


class Traced(Pool): ...


class Pooled(Pool): ...


class Box(Generic[T]): ...


class Reads(Protocol):
    def read(self) -> str: ...


class File(Reads):
    def read(self) -> str:
        return ""


class Page:
    def read(self) -> str:
        return ""


Replica = NewType("Replica", Pool)


async def pool() -> AsyncIterator[Pool]:
    yield Pool()


def cache(db: Pool = Inject) -> Cache:
    return Cache()


def traced() -> Traced:
    return Traced()


def pooled() -> Generator[Pooled, None, None]:
    yield Pooled()


async def replica() -> Replica:
    return Replica(Pool())


def box() -> Iterator[Box[int]]:
    yield Box()


def file() -> File:
    return File()


def page() -> Page:
    return Page()


def reader() -> Reads:
    return Page()


def maybe() -> Pool | None:
    return None


def noted() -> Annotated[Pool, "the main one"]:
    return Pool()


def providers(*functions: Callable[..., Any]) -> Providers:
    made = Providers()
    for function in functions:
        made.add(function)
    return made


@pytest.mark.parametrize(
    ("wanted", "functions", "found"),
    [
        (Pool, [pool, cache], "pool"),
        (Pool, [traced, pool], "pool"),
        (Pool, [cache, traced], "traced"),
        (Pool, [maybe], "maybe"),
        (Pool, [noted], "noted"),
        (Replica, [pool, replica], "replica"),
        (Pool, [replica, pool], "pool"),
        (Box[int], [box], "box"),
        (Box, [box], "box"),
        (Reads, [reader, page], "reader"),
        (Reads, [page, file], "file"),
    ],
)
def test_a_provided_value_is_found_by_its_very_type_else_as_the_only_subclass(
    wanted: Any, functions: list[Callable[..., Any]], found: str
) -> None:
    assert providers(*functions).find(wanted, "it is asked for").name == found


@pytest.mark.parametrize(
    ("wanted", "functions"),
    [
        (Traced, [pool]),
        (Pool, [replica]),
        (Box[str], [box]),
        (Reads, [page]),  # A protocol is met by who says so.
        (Pool | Cache, [pool, cache]),
    ],
)
def test_a_value_of_a_similar_type_is_not_injected(
    wanted: Any, functions: list[Callable[..., Any]]
) -> None:
    with pytest.raises(ConfigError, match=r"^it is asked for, but no provider has that type"):
        providers(*functions).find(wanted, "it is asked for")


def test_the_refusal_lists_the_provided_values_that_there_are() -> None:
    with pytest.raises(ConfigError, match=re.escape("known providers: pool (Pool), box (")):
        providers(pool, box).find(Cache, "it is asked for")
    with pytest.raises(ConfigError, match="known providers: none; is the module"):
        providers().find(Cache, "it is asked for")


def test_of_two_subclasses_neither_is_given() -> None:
    with pytest.raises(ConfigError, match=r"several .*: traced \(Traced\), pooled \(Pooled\)"):
        providers(traced, pooled).find(Pool, "it is asked for")


def test_two_provided_values_of_one_type_are_refused_with_the_remedy() -> None:
    def second() -> Pool:
        return Pool()

    with pytest.raises(ConfigError, match=r'pool and second.*NewType\("Second", Pool\)'):
        providers(pool, second)


def test_dependencies_are_opened_first_whatever_was_registered_first() -> None:
    def both(a: Cache = Inject, b: Pool = Inject) -> Box[str]:
        return Box()

    ordered = providers(both, box, cache, pool).in_order()
    assert [each.name for each in ordered] == ["pool", "cache", "both", "box"]


def test_provided_values_that_need_each_other_are_refused_with_the_circle() -> None:
    def first(it: Cache = Inject) -> Box[int]:
        return Box()

    def second(it: Pool = Inject) -> Cache:
        return Cache()

    def third(it: Box[int] = Inject) -> Pool:
        return Pool()

    with pytest.raises(ConfigError, match="each other: first -> second -> third -> first;"):
        providers(file, first, second, third).in_order()


def test_a_provided_value_that_needs_itself_is_refused() -> None:
    def own(it: Pool = Inject) -> Traced:
        return Traced()

    with pytest.raises(ConfigError, match="each other: own -> own;"):
        providers(own).in_order()


def test_a_provided_value_that_needs_what_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="the provider cache asks for `db: Pool`, but no"):
        providers(cache, box).in_order()


def unannotated():  # type: ignore[no-untyped-def]
    return Pool()


def nothing() -> None: ...


def anything() -> Any: ...


async def unlike() -> Pool:  # type: ignore[misc]
    yield Pool()


def hidden() -> Decimal: ...  # type: ignore[empty-body]


def needy(url: str) -> Pool:
    return Pool()


@asynccontextmanager
async def managed() -> AsyncIterator[Pool]:
    yield Pool()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (unannotated, "unannotated has no return annotation; add it"),
        (nothing, "nothing has no return annotation"),
        (anything, "anything has no return annotation"),
        (unlike, "unlike is a generator, so its annotation must be `-> AsyncIterator"),
        (hidden, "annotations of hidden cannot be evaluated at run time"),
        (needy, "needy takes 'url', which cannot be provided"),
        (managed, "managed is annotated as an iterator.*leave out @asynccontextmanager"),
        (Pool, "a provider must be a function"),
        (partial(pool), "a provider must be a function"),
        (5, "a provider must be a function"),
    ],
)
def test_invalid_provided_values_are_refused(function: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        providers(function)


def test_a_provided_value_may_have_defaults_of_its_own() -> None:
    def sized(db: Pool = Inject, size: int = 5) -> Cache:
        return Cache()

    (made,) = providers(sized)
    assert made.needs == (Need(parameter="db", type=Pool),)


class Hook:
    def __call__(self, db: Pool = Inject) -> None: ...

    def method(self, db: Pool | None = Inject) -> None: ...


def plain(a: int, b: Decimal | None = None) -> None: ...


def asking(a: int, db: Annotated[Pool, 1] = Inject, *, box: Box[int] = Inject) -> None: ...


@wraps(asking)
def wrapper(*args: Any, **kwargs: Any) -> None: ...


del wrapper.__annotations__


@pytest.mark.parametrize(
    ("function", "needs"),
    [
        (plain, {}),  # Nor are its annotations read, which could not be.
        (asking, {"db": Pool, "box": Box[int]}),
        (partial(asking, 1), {"db": Pool, "box": Box[int]}),
        (wrapper, {"db": Pool, "box": Box[int]}),
        (Hook(), {"db": Pool}),
        (Hook().method, {"db": Pool}),
        (int, {}),
        (print, {}),
        ({}.pop, {}),
    ],
)
def test_the_provided_values_of_a_function_come_from_its_signature(
    function: Any, needs: dict[str, Any]
) -> None:
    assert {need.parameter: need.type for need in needs_of(function)} == needs


def test_a_need_without_a_type_is_refused() -> None:
    def untyped(db=Inject) -> None: ...  # type: ignore[no-untyped-def]

    def vague(db: object = Inject) -> None: ...

    def placed(db: Pool = Inject, /) -> None: ...

    for function in (untyped, vague):
        with pytest.raises(ConfigError, match=r"'db' without a type; write `db: Po"):
            needs_of(function)
    with pytest.raises(ConfigError, match="as positional-only"):
        needs_of(placed)


def test_a_parameter_that_was_left_out_of_a_direct_call_says_so() -> None:
    def handler(db: Any = Inject) -> None:
        db.fetch()

    with pytest.raises(
        AttributeError, match=r"'fetch' is injected only by a worker .* direct call"
    ):
        handler()
    assert repr(Inject) == "Inject"
