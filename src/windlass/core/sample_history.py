"""Owns the record `sample:history`: what the last samples said of the rates, for those who look.

A ring of the last `POINTS` samples: of all queues together, and of the busiest `QUEUES`. Of the
others the last `_BRIEF` rates are kept, which are those of two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile

import msgspec
from msgspec import Struct

from windlass.core.job import Json
from windlass.core.metrics import bounded
from windlass.core.sample import EVERY, QueueSample, Sample
from windlass.core.states import State

HISTORY = "sample:history"
POINTS = 40
QUEUES = 20
_BRIEF = 9
_LATELY = 120.0
"""Seconds over which a rate is taken: within fewer, too much is chance."""
_LATE = 3 * EVERY.total_seconds()
"""Seconds after which all has been told that left, by workers that are alive."""
_SHOWN = 1.5 * POINTS * EVERY.total_seconds()
_PENDING = State.PENDING.value


class Line(Struct, kw_only=True):
    """What the samples said of one queue, or of all; None where they did not know."""

    depths: list[int | None] = []
    """Pending jobs."""
    arrivals: list[float | None] = []
    """May be below zero for a moment, where jobs were counted late that left; a mean is right."""
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
    """Return what a record says; one that cannot be read says nothing, and is begun anew."""
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
                arrivals=longer.arrivals[-_BRIEF:], services=longer.services[-_BRIEF:]
            )
    told: Json = msgspec.to_builtins(made)
    return told


def recent_rate(history: History, rates: Sequence[float | None], now: float) -> float | None:
    """Return the mean of the rates of the last two minutes; None if none of them is known."""
    taken = seconds = 0.0
    for at, before, rate in _intervals(history, rates):
        if rate is not None and now - _LATELY < at <= now:
            # After a gap, a rate is that of hours; it says no more of these minutes than others.
            weight = at - max(before, now - _LATELY)
            taken += rate * weight
            seconds += weight
    return max(taken / seconds, 0.0) if seconds > 0 else None


def is_explained(history: History, arrivals: Sequence[float | None], now: float) -> bool:
    """Say whether what came can be told by what is there and what left.

    A worker may tell a little late what left, so that less than nothing seems to have come. What
    nobody has told after that was purged or cancelled, or its worker was killed.
    """
    came = 0.0
    for at, before, rate in _intervals(history, arrivals):
        if rate is not None and now - _LATELY < at <= now and not (rate < 0 and at > now - _LATE):
            came += rate * (at - before)
    return came > -1.0


def _intervals(
    history: History, rates: Sequence[float | None]
) -> Iterator[tuple[float, float, float | None]]:
    """Return when each rate was told, and since when it is; they end with the last sample."""
    return zip(reversed(history.at[1:]), reversed(history.at[:-1]), reversed(rates), strict=False)


def curve(history: History, rates: Sequence[float | None], now: float) -> tuple[float, ...]:
    """Return the rates of the last minutes, from the first that is known.

    What is not known later is 0. What is older was before nobody sampled, and is no part of it.
    """
    lately = [rate for at, rate in zip(history.at, rates, strict=False) if now - _SHOWN < at <= now]
    return tuple(max(rate or 0.0, 0.0) for rate in dropwhile(lambda rate: rate is None, lately))


def _busiest(known: History, sample: Sample) -> list[str]:
    """Return the queues that are told of: the busiest, of which one that is in tends to stay."""
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
    """Add queues up; a rate that is not known of one of them is not known of all."""
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
    """Return what is known of a queue, with a point for each moment."""
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
