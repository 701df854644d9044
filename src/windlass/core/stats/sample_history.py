"""Owns the record `sample:history`: the rates of the last samples, for displays.

A ring of the last `POINTS` samples: of all queues together, and of the busiest `QUEUES`. Of the
others the last `_BRIEF_POINTS` rates are kept, which are those of two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile

import msgspec
from msgspec import Struct

from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import bounded
from windlass.core.records import Json
from windlass.core.stats.cluster_sample import EVERY, QueueSample, Sample

HISTORY = "sample:history"
POINTS = 40
QUEUES = 20
_BRIEF_POINTS = 9
_RATE_SECONDS = 120.0
"""Seconds over which a rate is taken: within fewer, too much is chance."""
_REPORTED_SECONDS = 3 * EVERY.total_seconds()
"""Seconds after which live workers have reported all departures."""
_SHOWN_SECONDS = 1.5 * POINTS * EVERY.total_seconds()
_PENDING = State.PENDING.value


class Line(Struct, kw_only=True):
    """The samples of one queue, or of all; None where a figure was not known."""

    depths: list[int | None] = []
    """Pending jobs."""
    arrivals: list[float | None] = []
    """May be below zero for a moment, where departures were counted late; its mean is right."""
    services: list[float | None] = []


class Rates(Struct, kw_only=True):
    """The last rates of a queue that is not among the busiest; they end with the last sample."""

    arrivals: list[float | None] = []
    services: list[float | None] = []


class History(Struct, kw_only=True):
    """The last samples, oldest first. Every line has a point for each moment."""

    at: list[float] = []
    total: Line = msgspec.field(default_factory=Line)
    queues: dict[str, Line] = {}
    others: dict[str, Rates] = {}

    def rates(self, queue: str) -> Rates:
        """Return the rates of a queue, as far back as they are known."""
        line = self.queues.get(queue)
        if line is None:
            return self.others.get(queue) or Rates()
        return Rates(arrivals=line.arrivals, services=line.services)


def read_history(record: Json | None) -> History:
    """Return the history in a record; an unreadable one is empty, and begun anew."""
    try:
        history = msgspec.convert(record or {}, History)
    except msgspec.ValidationError:
        return History()
    count = len(history.at)
    lines = (history.total, *history.queues.values())
    fits = all(len(each) == count for line in lines for each in _columns(line))
    brief = (each for rates in history.others.values() for each in (rates.arrivals, rates.services))
    return history if fits and all(len(each) <= count for each in brief) else History()


def continued(record: Json | None, sample: Sample) -> Json:
    """Return the record after one more sample; one with a later time is from another clock."""
    known = read_history(record)
    kept = [index for index, at in enumerate(known.at) if at < sample.at][-(POINTS - 1) :]
    made = History(
        at=[*(known.at[index] for index in kept), sample.at],
        total=_longer(known.total, kept, _sum(sample.queues.values())),
    )
    busiest = _busiest(known, sample)
    for name, queue in sample.queues.items():
        longer = _longer(_line(known, name), kept, queue)
        if name in busiest:
            made.queues[name] = longer
        else:
            made.others[name] = Rates(
                arrivals=longer.arrivals[-_BRIEF_POINTS:],
                services=longer.services[-_BRIEF_POINTS:],
            )
    after: Json = msgspec.to_builtins(made)
    return after


def recent_rate(history: History, rates: Sequence[float | None], now: float) -> float | None:
    """Return the mean of the rates of the last two minutes; None if none of them is known."""
    taken = seconds = 0.0
    for at, before, rate in _intervals(history, rates):
        if rate is not None and now - _RATE_SECONDS < at <= now:
            # After a gap, a rate is a mean over hours, and counts no more than others.
            weight = at - max(before, now - _RATE_SECONDS)
            taken += rate * weight
            seconds += weight
    return max(taken / seconds, 0.0) if seconds > 0 else None


def is_explained(history: History, arrivals: Sequence[float | None], now: float) -> bool:
    """Return whether arrivals can be derived from counts and departures.

    A worker may report departures a little late, so that the arrivals seem negative. Departures
    that no worker has reported by then were purges or cancellations, or their worker was killed.
    """
    came = 0.0
    for at, before, rate in _intervals(history, arrivals):
        if (
            rate is not None
            and now - _RATE_SECONDS < at <= now
            and not (rate < 0 and at > now - _REPORTED_SECONDS)
        ):
            came += rate * (at - before)
    return came > -1.0


def _intervals(
    history: History, rates: Sequence[float | None]
) -> Iterator[tuple[float, float, float | None]]:
    """Return the interval of every rate with the rate, the latest first."""
    return zip(reversed(history.at[1:]), reversed(history.at[:-1]), reversed(rates), strict=False)


def curve(history: History, rates: Sequence[float | None], now: float) -> tuple[float, ...]:
    """Return the rates of the last minutes, from the first that is known.

    An unknown rate later on is 0. Rates from before a gap in sampling are left out.
    """
    lately = [
        rate
        for at, rate in zip(history.at, rates, strict=False)
        if now - _SHOWN_SECONDS < at <= now
    ]
    return tuple(max(rate or 0.0, 0.0) for rate in dropwhile(lambda rate: rate is None, lately))


def _busiest(known: History, sample: Sample) -> list[str]:
    # A queue that is shown already stays in preference, so that the display is steady.
    weight = {
        name: (queue.arrival_rate or 0.0) + (queue.service_rate or 0.0) + _depth(queue)
        for name, queue in sample.queues.items()
    }
    for name in weight.keys() & known.queues.keys():
        weight[name] = weight[name] * 2 + 1
    named = bounded(weight, QUEUES)
    return sorted(name for name, called in named.items() if name == called)


def _longer(line: Line, kept: list[int], queue: QueueSample) -> Line:
    return Line(
        depths=[*(line.depths[index] for index in kept), _depth(queue)],
        arrivals=[*(line.arrivals[index] for index in kept), _rounded(queue.came)],
        services=[*(line.services[index] for index in kept), _rounded(queue.service_rate)],
    )


def _sum(queues: Iterable[QueueSample]) -> QueueSample:
    # A rate that is unknown for one queue is unknown for the sum.
    some = list(queues)
    arrivals = [queue.came for queue in some]
    services = [queue.service_rate for queue in some]
    return QueueSample(
        jobs={_PENDING: sum(map(_depth, some))},
        came=total_rate(arrivals),
        service_rate=total_rate(services),
    )


def total_rate(rates: Iterable[float | None]) -> float | None:
    """Add rates up; None if there are none, or one is not known."""
    known = list(rates)
    return sum(each or 0.0 for each in known) if known and None not in known else None


def _line(known: History, name: str) -> Line:
    if name in known.queues:
        return known.queues[name]
    rates, count = known.rates(name), len(known.at)
    return Line(
        depths=[None] * count,
        arrivals=[*[None] * (count - len(rates.arrivals)), *rates.arrivals],
        services=[*[None] * (count - len(rates.services)), *rates.services],
    )


def _columns(line: Line) -> tuple[list[int | None] | list[float | None], ...]:
    return line.depths, line.arrivals, line.services


def _depth(queue: QueueSample) -> int:
    return queue.jobs.get(_PENDING, 0)


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 4)
