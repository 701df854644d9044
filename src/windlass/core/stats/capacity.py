"""Owns the capacity that a load needs, in slots, and the time until a queue is empty.

An unknown figure is None, with the reason: a made-up number is worse than none.
"""

from __future__ import annotations

from msgspec import Struct

from windlass.core.stats.cluster_sample import EVERY

ROOM = 0.8
"""The share of its slots that a fleet may use for long: at full use, queues grow without end."""
_STEADY = 0.02
_BACKLOG = EVERY.total_seconds()
NEVER = "it never becomes empty"
"""The reason given where waiting will not end by itself."""
NO_RATES = "known about 30 s after a worker has started"
"""The reason given where figures need two samples."""
UNTOLD = "jobs left without a run, as when some are purged; known in two minutes"
"""The reason given where arrivals are unknown."""
UNSAMPLED = "no worker has sampled lately; see service.failed in their logs"
"""The reason given though workers have been alive for longer than a sample takes."""
UNCOUNTED = "more jobs arrive than can be counted"
"""The reason given where a queue is too long to count its arrivals."""
_LONG_SECONDS = 60.0
"""Seconds of work above which too few jobs end within two minutes for a rate."""
_NOTHING_LEAVES = "no jobs arrive or finish; windlass why <job> shows what a job waits for"
_NO_RUNS = "known once some of its jobs have finished"
_AGAIN = "nearly all runs fail and are retried; known once more of its jobs have finished"


class Load(Struct, frozen=True, kw_only=True):
    """The measured load of one queue, or of all of them."""

    waiting: int
    capped: bool = False
    """Whether more jobs wait than were counted."""
    oldest: float | None = None
    paused: bool = False
    slots: float = 0.0
    """How many of its jobs the live workers that serve it can run at once."""
    running: int = 0
    """How many of its jobs run."""
    idle: float = 0.0
    """How many more of them could start at this moment."""
    unrated: str = NO_RATES
    """Why a rate is not known, where it is not."""
    arrival: float | None = None
    service: float | None = None
    again: bool = False
    """Whether nearly all of its runs are retried, so that `work` is not known."""
    growth: float | None = None
    """Growth of the waiting jobs per second, by counts of the last seconds; None: not known."""
    work: float | None = None
    """Seconds of a slot that a job takes in all of its runs together."""


def slots_needed(load: Load) -> tuple[float | None, str]:
    """Return how many slots keep up with the arrivals, with some reserve; or None, and why not."""
    if load.arrival is None:
        return None, load.unrated
    if not load.arrival:
        return 0.0, ""
    if load.work is None:
        return None, _AGAIN if load.again else _NO_RUNS
    # Too few long jobs end within two minutes for a rate.
    taken = load.work if load.work > _LONG_SECONDS else max(load.work, _occupied(load))
    return load.arrival * taken / ROOM, ""


def _occupied(load: Load) -> float:
    """Return the seconds for which a job has a slot, as measured by full slots.

    That is longer than the job runs, by the time that the store takes to claim and settle it.
    """
    is_behind = load.oldest is not None and load.oldest >= _BACKLOG
    if not load.service or not is_behind or not 0 < load.slots < load.running + 1:
        return 0.0
    return load.slots / load.service


def seconds_to_empty(load: Load) -> tuple[float | None, str]:
    """Return the time until nothing waits, at the present rates; or None, and why."""
    if not load.waiting and not load.capped:
        return 0.0, ""
    if load.paused:
        return None, f"it is paused: {NEVER}"
    if not load.slots:
        return None, f"no worker serves it: {NEVER}"
    if load.capped:
        return None, "more jobs are waiting than are counted"
    seconds, why = _empty_by_rates(load)
    # Rates are older than counts: a shrinking queue gets empty, whatever the rates are.
    if seconds is None and load.growth is not None and load.growth < 0:
        return load.waiting / -load.growth, ""
    return seconds, why


def _empty_by_rates(load: Load) -> tuple[float | None, str]:
    if load.arrival is None or load.service is None:
        return None, load.unrated
    if load.work is None and load.running and not load.service:
        return None, _AGAIN if load.again else _NO_RUNS
    spare = _pace(load, load.service) - load.arrival
    if not load.arrival and not spare:
        return None, _NOTHING_LEAVES
    if spare <= load.arrival * _STEADY:
        return None, f"jobs arrive at least as fast as they finish: {NEVER}"
    return load.waiting / spare, ""


def _pace(load: Load, service: float) -> float:
    """Return how many jobs per second can leave.

    Where jobs have waited for long, that is the present rate, whatever limits it: slots, limits or
    breakers. Otherwise idle slots count, too; and where no more jobs wait than there are slots,
    they have only just come. Hardly any job that takes minutes ends within a sample: there, the
    running jobs give the rate.
    """
    if load.work and load.work > _LONG_SECONDS:
        service = max(service, load.running / load.work)
    if not load.work or (load.oldest is not None and load.oldest >= _BACKLOG):
        return service
    if load.waiting <= load.slots:
        return max(service, load.slots / load.work)
    return service + load.idle / load.work
