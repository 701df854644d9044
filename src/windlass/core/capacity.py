"""Owns what a load needs and how soon it is done: slots, and the time to drain.

What cannot be known is None, with the reason: a number that is made up is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.sample import EVERY

ROOM = 0.8
"""The share of its slots that a fleet may use for long: where it uses all, queues are endless."""
_STEADY = 0.02
_BACKLOG = EVERY.total_seconds()
NEVER = "it does not drain"
"""How it is told that waiting will not end by itself."""
NO_RATES = "known about 30 s after a worker has started"
"""Why nothing is known that is told by comparing two samples."""
UNTOLD = "jobs left that no worker ran to an end, as when some are purged: known in two minutes"
"""Why nobody knows how many came."""
UNSAMPLED = "no worker has sampled lately: service.failed in their logs says why"
"""Why nothing is known though workers have been alive for longer than that takes."""
UNCOUNTED = "more jobs come than can be counted"
"""Why nobody knows how many came into a queue that is too long to count it."""
_LONG = 60.0
"""Seconds of work from which on too few jobs end within two minutes to tell a rate by that."""
_NOTHING_LEAVES = "nothing comes and nothing leaves: windlass why <job> says what a job waits for"
_NO_RUNS = "known once jobs of it have ended"
_AGAIN = "nearly all runs fail and are tried again: known once more jobs of it have ended"


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is known of the jobs of one queue, or of all of them."""

    waiting: int
    capped: bool = False
    """Whether more wait than were counted."""
    oldest: float | None = None
    paused: bool = False
    slots: int = 0
    """How many jobs the live workers can run at once that serve it."""
    running: int = 0
    """How many of its jobs run."""
    idle: int = 0
    """How many of those slots are free."""
    unrated: str = NO_RATES
    """Why a rate is not known, where it is not."""
    arrival: float | None = None
    service: float | None = None
    again: bool = False
    """Whether nearly all of its runs are tried again, so that `work` is not known."""
    work: float | None = None
    """Seconds of a slot that a job takes until it is done with, all of its runs together."""


def slots_needed(load: Load) -> tuple[float | None, str]:
    """Return how many slots keep up with what comes, with some room; or None, and why not."""
    if load.arrival is None:
        return None, load.unrated
    if not load.arrival:
        return 0.0, ""
    if load.work is None:
        return None, _AGAIN if load.again else _NO_RUNS
    # Of long ones too few end within two minutes to tell anything by that.
    taken = load.work if load.work > _LONG else max(load.work, _occupied(load))
    return load.arrival * taken / ROOM, ""


def _occupied(load: Load) -> float:
    """Return for how long a job has a slot, as the slots tell that are full of them.

    That is longer than it runs, by the time that the store takes to hand it out and take it back.
    """
    is_behind = load.oldest is not None and load.oldest >= _BACKLOG
    if not load.service or not is_behind or not 0 < load.slots <= load.running:
        return 0.0
    return load.slots / load.service


def drain_seconds(load: Load) -> tuple[float | None, str]:
    """Return after how long nothing waits any more, if all goes on like this; or None, and why."""
    if not load.waiting and not load.capped:
        return 0.0, ""
    if load.paused:
        return None, f"it is paused: {NEVER}"
    if not load.slots:
        return None, f"no worker serves it: {NEVER}"
    if load.capped:
        return None, "more jobs wait than are counted"
    if load.arrival is None or load.service is None:
        return None, load.unrated
    if load.work is None and load.running and not load.service:
        return None, _AGAIN if load.again else _NO_RUNS
    spare = _pace(load, load.service) - load.arrival
    if not load.arrival and not spare:
        return None, _NOTHING_LEAVES
    if spare <= load.arrival * _STEADY:
        return None, f"as much comes as leaves, or more: {NEVER}"
    return load.waiting / spare, ""


def _pace(load: Load, service: float) -> float:
    """Return how many jobs a second can leave.

    Where they have waited for long, that is what leaves now, whatever it is that keeps it from
    being more: slots, limits, breakers. Otherwise idle slots can be used, too; and where no more
    wait than there are slots, these have only just come. Of jobs that take minutes hardly any ends
    while somebody looks: there, those that run tell what leaves.
    """
    if load.work and load.work > _LONG:
        service = max(service, load.running / load.work)
    if not load.work or (load.oldest is not None and load.oldest >= _BACKLOG):
        return service
    if load.waiting <= load.slots:
        return max(service, load.slots / load.work)
    return service + load.idle / load.work
