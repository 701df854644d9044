"""Owns limits as people write them, `rate="10/s"` or `concurrency=5`, and what they are in tokens.

A limit of n is n tokens, for each key if it goes by keys. A running job of a concurrency limit has
one for as long as it runs. A start under a rate uses one up, which then cools for the rate's period
before it can be used again: so there are never more than n starts in any period.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar
from zlib import crc32

from windlass.core.errors import ConfigError
from windlass.core.job import Json
from windlass.core.names import check_name

T = TypeVar("T")
_RATE = re.compile(r"\s*(\d+)\s*/\s*(s|m|h|d)\s*", re.ASCII)
_PERIODS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MOST = 10_000_000
_SHARDS = 64
_OF_A_KIND, _OF_A_QUEUE = "kind:", "queue:"
RECORD = "limit:"
"""How the names of the records begin that keep who has which tokens."""
OVERRIDE = "limits:"
"""How the names of the records begin that change a limit while workers run."""
Per = Literal["kind", "key"]


class Measure(StrEnum):
    """What a limit bounds: starts in a period, or jobs at a time."""

    RATE = "rate"
    CONCURRENCY = "concurrency"


class Rate(NamedTuple):
    """So many starts in so many seconds."""

    starts: int
    period: int

    def __str__(self) -> str:
        unit = next(unit for unit, seconds in _PERIODS.items() if seconds == self.period)
        return f"{self.starts}/{unit}"


class Tokens(NamedTuple):
    """How many tokens there are for a key, and for how many seconds each cools after its use."""

    capacity: int
    cools: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit under the name by which it is shown and changed: `kind:crawl`, `queue:mail`, `gpu`.

    A limit that is `ordered` is of one job at a time for each key, and lets none overtake another.
    """

    name: str
    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None
    keyed: bool = False
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.burst is not None and self.rate is None:
            raise ValueError("a burst is the burst of a rate: give one, like rate='10/s'")

    def tokens(self) -> dict[Measure, Tokens]:
        """Return what there is of each measure."""
        found = {}
        if self.rate is not None:
            burst = self.rate.starts if self.burst is None else self.burst
            cools = burst * self.rate.period / self.rate.starts
            found[Measure.RATE] = Tokens(burst, cools)
        if self.concurrency is not None:
            found[Measure.CONCURRENCY] = Tokens(self.concurrency)
        return found

    def record(self, key: str) -> str:
        """Return the name of the record that keeps who has the tokens of a key."""
        return f"{RECORD}{self.name}/{shard_of(key)}" if self.keyed else f"{RECORD}{self.name}"

    def changed(self, override: Json) -> Limit:
        """Return the limit with what a person has changed since; a strict order stays strict."""
        change = Change.read(override)
        rate, burst = self.rate, self.burst
        if change.rate is not None:
            rate, burst = change.rate, None
        if change.burst is not None and rate is not None:
            burst = change.burst
        concurrency = self.concurrency if change.concurrency is None else change.concurrency
        return replace(self, rate=rate, burst=burst, concurrency=1 if self.ordered else concurrency)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a person changed of a limit while workers ran; None leaves it as the code has it."""

    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None

    @classmethod
    def of(
        cls, *, rate: str | None = None, burst: int | None = None, concurrency: int | None = None
    ) -> Change:
        """Read a change.

        Raises:
            ValueError: it changes nothing, or to something that is no limit.
        """
        if rate is None and burst is None and concurrency is None:
            raise ValueError("give what the limit shall be: a rate, a burst or a concurrency")
        return cls(
            rate=None if rate is None else read_rate(rate),
            burst=None if burst is None else _number("a burst", burst),
            concurrency=None if concurrency is None else _number("a concurrency", concurrency),
        )

    @classmethod
    def read(cls, record: Json) -> Change:
        """Take a change from its record; what cannot be read there changes nothing."""
        found = cls()
        for part in ("rate", "burst", "concurrency"):
            if record.get(part) is not None:
                try:
                    one = cls.of(**{part: record[part]})
                except (TypeError, ValueError):
                    continue
                found = replace(found, **{part: getattr(one, part)})
        return found

    def written(self) -> Json:
        """Return the change for its record."""
        told = {
            "rate": None if self.rate is None else str(self.rate),
            "burst": self.burst,
            "concurrency": self.concurrency,
        }
        return {name: value for name, value in told.items() if value is not None}


def read_rate(text: object) -> Rate:
    """Read a rate like "10/s", "100/m", "1000/h" or "5/d".

    Raises:
        ValueError: it is none, or of nothing.
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(
            f"{text!r} is not a rate; write it like '10/s', '100/m', '1000/h' or '5/d'"
        )
    return Rate(_number("a rate", int(found[1])), _PERIODS[found[2]])


def shard_of(key: str) -> int:
    """Return in which of the records of a limit a key is kept, the same everywhere and for ever."""
    return crc32(key.encode()) % _SHARDS


def limit_of_kind(
    kind: str,
    *,
    rate: str | None,
    burst: int | None,
    concurrency: int | None,
    per: Per | None,
    ordered: bool,
    has_key: bool,
) -> Limit | None:
    """Return the limit that the options of a kind make, if any.

    Raises:
        ConfigError: they make none that could hold.
    """
    what = f"kind {kind!r}"
    if per not in (None, "kind", "key"):
        raise ConfigError(f"{what}: per= is 'kind' or 'key', and {per!r} is neither")
    if per == "key" and not has_key:
        raise ConfigError(f"{what}: per='key' needs key=, the argument that the limit goes by")
    if ordered and (not has_key or per == "kind"):
        raise ConfigError(
            f"{what}: ordered=True is an order for each key: give key=, and not per='kind'"
        )
    if ordered and concurrency not in (None, 1):
        raise ConfigError(
            f"{what}: ordered=True is one job at a time for each key, so leave "
            f"concurrency={concurrency!r} out"
        )
    if not ordered and rate is None and burst is None and concurrency is None:
        if per is not None:
            raise ConfigError(f"{what}: per= says what a limit goes by: give rate= or concurrency=")
        return None
    keyed = has_key if per is None else per == "key"
    return _checked(
        what,
        lambda: Limit(
            name=_OF_A_KIND + kind,
            **_parts(rate, burst, 1 if ordered else concurrency),
            keyed=keyed,
            ordered=ordered,
        ),
    )


def limit_of_app(
    name: str | None,
    *,
    queue: str | None,
    rate: str | None,
    burst: int | None,
    concurrency: int | None,
) -> Limit:
    """Return a limit that kinds share: a resource's by its name, or a queue's.

    Raises:
        ConfigError: it is none, or has no name, or two.
    """
    if (name is None) == (queue is None):
        raise ConfigError("app.limit takes the name of a resource, or queue=, one of them")
    what = f"limit {name!r}" if queue is None else f"the limit of queue {queue!r}"
    if rate is None and concurrency is None:
        raise ConfigError(f"{what} limits nothing: give rate= or concurrency=")
    if name is not None and name.startswith((_OF_A_KIND, _OF_A_QUEUE)):
        raise ConfigError(f"{what}: names that begin with 'kind:' or 'queue:' are taken")

    def make() -> Limit:
        known = queue_limit(check_name("queue", queue)) if queue is not None else name
        parts = _parts(rate, burst, concurrency)
        return Limit(name=check_name("limit", known), **parts)

    return _checked(what, make)


def queue_limit(queue: str) -> str:
    """Return the name of the limit of a queue."""
    return _OF_A_QUEUE + queue


def checked_amount(kind: str, resource: str | None, amount: object) -> int:
    """Return how much of a resource a job of a kind uses.

    Raises:
        ConfigError: it is nothing, or there is no resource.
    """
    if resource is None and amount != 1:
        raise ConfigError(f"kind {kind!r}: amount= is of a resource: give resource=, too")
    return _checked(f"kind {kind!r}", lambda: _number("an amount", amount))


def _parts(rate: str | None, burst: int | None, concurrency: int | None) -> dict[str, Any]:
    return vars(Change.of(rate=rate, burst=burst, concurrency=concurrency))


def _number(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ValueError(f"{what} is a whole number from 1 to {_MOST:,}, and {value!r} is not")
    return value


def _checked(what: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None
