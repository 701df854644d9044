"""Owns how live counts and the last sample of a worker are combined.

Jobs are counted at the moment of asking; rates need two samples, so they are those of the last one,
and older than the counts. `Trend` says whether a queue shrinks where no rate is known yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from windlass.core.jobs.states import State
from windlass.core.stats.cluster_sample import QueueSample, Sample, walk_after

MOST = 10_000
"""The most jobs of each state that a live count covers, all queues together.

Counting 20,000 took six times as long on PostgreSQL with a million waiting jobs, most of the time
of the first page. A worker's sample goes further.
"""
_PENDING = State.PENDING.value
_TREND_SECONDS = 30.0
"""How far back a trend looks."""
_ENOUGH_SECONDS, _LEAST_SECONDS = 10.0, 2.0
"""Seconds over which a trend is taken, if counts go back as far, and the least for any trend."""

_FEWEST_LOOKS = 3
"""Counts in a row that have to fall before a queue is said to work off a burst."""


def live_walk(recorded: Sample | None) -> int:
    """Return how many jobs a live count may cover: fewer where the store was slow lately."""
    return min(walk_after(recorded), MOST)


def with_rates(live: Sample, recorded: Sample) -> Sample:
    """Return live counts with the rates of a worker's sample.

    A worker's count may go further than a live one: it is used where the live one was cut off.
    """
    queues = {
        name: _rated(queue, recorded.queues[name]) if name in recorded.queues else queue
        for name, queue in live.queues.items()
    }
    return replace(live, queues=queues)


def _rated(live: QueueSample, recorded: QueueSample) -> QueueSample:
    further = {
        state: recorded.jobs[state]
        for state in live.capped
        if recorded.jobs.get(state, 0) > live.jobs.get(state, 0)
    }
    return replace(
        live,
        jobs=live.jobs | further,
        capped=[each for each in live.capped if each not in further or each in recorded.capped],
        arrival_rate=recorded.arrival_rate,
        came=recorded.came,
        estimated=recorded.estimated,
        service_rate=recorded.service_rate,
    )


class Trend:
    """How the pending jobs of each queue changed within the last seconds, by several counts."""

    def __init__(self) -> None:
        self._counts: dict[float, Mapping[str, int | None]] = {}

    def note(self, live: Sample, recorded: Sample | None) -> None:
        """Remember the present counts, and those of a worker before.

        Old counts are forgotten, and those of the future, from before a clock was set back.
        """
        for sample in (live, recorded):
            if sample is not None:
                counts = {name: _pending(each) for name, each in sample.queues.items()}
                self._counts[sample.at] = counts
        self._counts = {
            at: each for at, each in self._counts.items() if 0 <= live.at - at <= _TREND_SECONDS
        }

    def growth(self, queue: str) -> float | None:
        """Return the growth of the waiting jobs per second, below zero where they shrink.

        None: too little was counted.
        """
        known = {at: each.get(queue, 0) for at, each in self._counts.items()}
        counts = {at: count for at, count in known.items() if count is not None}
        if not counts:
            return None
        last = max(counts)
        # Not since the oldest count: a new worker would seem to be slow at first.
        first = max((at for at in counts if last - at >= _ENOUGH_SECONDS), default=min(counts))
        first = _burst(counts, first, last) or first
        if last - first < _LEAST_SECONDS:
            return None
        return (counts[last] - counts[first]) / (last - first)


def _burst(counts: Mapping[float, int], first: float, last: float) -> float | None:
    """Return when jobs came at once that only became fewer since; None if none did.

    Counts from before a burst say nothing about the pace at which it is worked off.
    """
    times = sorted(at for at in counts if first <= at <= last)
    peak = max(times, key=lambda at: (counts[at], at))
    since = [counts[at] for at in times if at >= peak]
    is_falling = len(since) > _FEWEST_LOOKS and since == sorted(since, reverse=True)
    return peak if is_falling and last - peak >= _LEAST_SECONDS else None


def _pending(queue: QueueSample) -> int | None:
    return None if _PENDING in queue.capped else queue.jobs.get(_PENDING, 0)
