"""Owns limits as people write them, `rate="10/s"` or `concurrency=5`, and their tokens.

A limit of n is n tokens, for each key if it is keyed. A running job of a concurrency limit has one
for as long as it runs. A start under a rate uses one up, which then cools for the rate's period
before it can be used again: so there are never more than n starts in any period.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar
from zlib import crc32

from msgspec import Struct
from msgspec.structs import asdict, replace

from windlass.core.errors import ConfigError
from windlass.core.records import Json
from windlass.core.values.names import check_name
from windlass.core.workers import LimitInfo

T = TypeVar("T")
_RATE = re.compile(r"\s*(\d+)\s*/\s*(s|m|h|d)\s*", re.ASCII)
_PERIODS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MOST = 10_000_000
_SHARDS = 64
_OF_A_KIND, _OF_A_QUEUE = "kind:", "queue:"
RECORD = "limit:"
"""The prefix of the records that hold the tokens of workers."""
OVERRIDE = "limits:"
"""The prefix of the records that change a limit while workers run."""
Per = Literal["kind", "key"]


class Measure(StrEnum):
    """The quantity that a limit bounds: starts in a period, or jobs at a time."""

    RATE = "rate"
    CONCURRENCY = "concurrency"


class Rate(NamedTuple):
    """A number of starts per period in seconds."""

    starts: int
    period: int

    def __str__(self) -> str:
        unit = next(unit for unit, seconds in _PERIODS.items() if seconds == self.period)
        return f"{self.starts}/{unit}"


class Tokens(NamedTuple):
    """How many tokens there are for a key, and for how many seconds each cools after its use."""

    capacity: int
    cools: float = 0.0


class Limit(Struct, frozen=True, kw_only=True):
    """A limit under the name by which it is shown and changed: `kind:crawl`, `queue:mail`, `gpu`.

    An `ordered` limit allows one job at a time for each key, and no overtaking.
    """

    name: str
    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None
    keyed: bool = False
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.burst is not None and self.rate is None:
            raise ValueError("burst= needs rate=; write it like rate='10/s'")

    def tokens(self) -> dict[Measure, Tokens]:
        """Return the supply of tokens for each measure."""
        found = {}
        if self.rate is not None:
            burst = self.rate.starts if self.burst is None else self.burst
            cools = burst * self.rate.period / self.rate.starts
            found[Measure.RATE] = Tokens(burst, cools)
        if self.concurrency is not None:
            found[Measure.CONCURRENCY] = Tokens(self.concurrency)
        return found

    def info(self) -> LimitInfo:
        """Return the limit as a worker reports it."""
        return LimitInfo(
            rate=None if self.rate is None else str(self.rate),
            burst=self.burst,
            concurrency=self.concurrency,
            keyed=self.keyed,
            ordered=self.ordered,
        )

    @classmethod
    def reported(cls, name: str, info: LimitInfo) -> Limit:
        """Return the limit that a worker reported.

        Raises:
            ValueError: it is none, as another release may have written it.
        """
        return cls(
            name=name,
            rate=None if info.rate is None else read_rate(info.rate),
            burst=info.burst,
            concurrency=info.concurrency,
            keyed=info.keyed,
            ordered=info.ordered,
        )

    def record(self, key: str) -> str:
        """Return the name of the record that holds the tokens of a key."""
        return f"{RECORD}{self.name}/{shard_of(key)}" if self.keyed else f"{RECORD}{self.name}"

    def changed(self, override: Json) -> Limit:
        """Return the limit with the changes of an operator; a strict order stays strict."""
        change = Change.read(override)
        rate, burst = self.rate, self.burst
        if change.rate is not None:
            rate, burst = change.rate, None
        if change.burst is not None and rate is not None:
            burst = change.burst
        concurrency = self.concurrency if change.concurrency is None else change.concurrency
        return replace(self, rate=rate, burst=burst, concurrency=1 if self.ordered else concurrency)


class Change(Struct, frozen=True, kw_only=True):
    """An operator's change of a limit while workers run; None leaves a value as in the code."""

    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None

    @classmethod
    def of(
        cls, *, rate: str | None = None, burst: int | None = None, concurrency: int | None = None
    ) -> Change:
        """Read a change."""
        if rate is None and burst is None and concurrency is None:
            raise ValueError("a change of a limit needs a rate, a burst or a concurrency")
        return cls(
            rate=None if rate is None else read_rate(rate),
            burst=None if burst is None else _number("a burst", burst),
            concurrency=None if concurrency is None else _number("a concurrency", concurrency),
        )

    @classmethod
    def read(cls, record: Json) -> Change:
        """Read a change from its record; an unreadable one changes nothing."""
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
        parts = {
            "rate": None if self.rate is None else str(self.rate),
            "burst": self.burst,
            "concurrency": self.concurrency,
        }
        return {name: value for name, value in parts.items() if value is not None}


def read_rate(text: object) -> Rate:
    """Read a rate like "10/s", "100/m", "1000/h" or "5/d".

    Raises:
        ValueError: it is none, or of nothing.
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(
            f"a rate must be a number per unit of time, got {text!r}; write it like '10/s', "
            "'100/m', '1000/h' or '5/d'"
        )
    return Rate(_number("a rate", int(found[1])), _PERIODS[found[2]])


def shard_of(key: str) -> int:
    """Return the number of the record that holds a key's tokens; it never changes."""
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
    """Return the limit from the options of a kind, if any."""
    what = f"kind {kind!r}"
    if per not in (None, "kind", "key"):
        raise ConfigError(f"{what}: per must be 'kind' or 'key', got {per!r}")
    if per == "key" and not has_key:
        raise ConfigError(f"{what}: per='key' needs key=, the argument by which it limits")
    if ordered and (not has_key or per == "kind"):
        raise ConfigError(f"{what}: ordered=True needs key= and cannot be combined with per='kind'")
    if ordered and concurrency not in (None, 1):
        raise ConfigError(
            f"{what}: ordered=True runs one job at a time for each key; leave out "
            f"concurrency={concurrency!r}"
        )
    if not ordered and rate is None and burst is None and concurrency is None:
        if per is not None:
            raise ConfigError(f"{what}: per= needs rate= or concurrency=")
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
    """Return a limit that kinds share: one by its name, or a queue's."""
    if (name is None) == (queue is None):
        raise ConfigError("app.limit needs either a name or queue=")
    what = f"limit {name!r}" if queue is None else f"the limit of queue {queue!r}"
    if rate is None and concurrency is None:
        raise ConfigError(f"{what} needs rate= or concurrency=")
    if str(name).startswith((_OF_A_KIND, _OF_A_QUEUE)):
        raise ConfigError(
            f"{what}: names that start with 'kind:' or 'queue:' are reserved; choose another"
        )

    def make() -> Limit:
        known = queue_limit(check_name("queue", queue)) if queue is not None else name
        parts = _parts(rate, burst, concurrency)
        return Limit(name=check_name("limit", known), **parts)

    return _checked(what, make)


def queue_limit(queue: str) -> str:
    return _OF_A_QUEUE + queue


def checked_units(kind: str, shared_limit: str | None, units: object) -> int:
    """Return how many units of a shared limit a job of a kind uses."""
    if shared_limit is None and units != 1:
        raise ConfigError(f"kind {kind!r}: units= needs limit=")
    return _checked(f"kind {kind!r}", lambda: _number("units", units))


def _parts(rate: str | None, burst: int | None, concurrency: int | None) -> dict[str, Any]:
    return asdict(Change.of(rate=rate, burst=burst, concurrency=concurrency))


def _number(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ValueError(f"{what} must be a whole number from 1 to {_MOST:,}, got {value!r}")
    return value


def _checked(what: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None
