"""Owns the cluster-wide figures: how they are made up of what the store says, kept, and exposed.

One worker at a time makes them, at most every `EVERY`, and keeps them in the record
`sample:cluster`; `sample:turn` says when somebody took the turn last. Everybody else reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from windlass.core import kind_stats
from windlass.core.breaker_record import RECORD as BREAKERS
from windlass.core.breaker_record import BreakerState, read_status
from windlass.core.job import Depths, Head, Json, Lane, WorkerRecord
from windlass.core.kind_stats import KindStats
from windlass.core.limits import RECORD as LIMITS
from windlass.core.metrics import NAMES, OTHER, bounded
from windlass.core.pauses import Pauses
from windlass.core.states import State
from windlass.core.targets import TARGETS

PREFIX = "sample:"
TURN = "sample:turn"
CLUSTER = "sample:cluster"
EVERY = timedelta(seconds=15)
_RATED = 4 * EVERY
"""After which nobody has sampled for a while: a mean over hours says nothing of what is now."""
DRAINING = "draining"
_BREAKERS = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class QueueSample(Struct, kw_only=True, omit_defaults=True):
    """A queue: how many jobs are in which state, whose heads wait for how long, who serves it."""

    jobs: dict[str, int] = {}
    capped: list[str] = []
    """The states in which there are more than were counted."""
    oldest: float | None = None
    """Seconds for which the oldest pending job has been due whose kind and key are not paused."""
    held: float | None = None
    """The same of the oldest one whose kind or key is paused."""
    workers: int = 0
    unserved: int = 0
    """Lanes with pending jobs that no live worker would run, paused kinds and keys aside."""
    paused: bool = False
    left: int = 0
    """Jobs that left it for good, ever; rates are differences of that."""
    arrival_rate: float | None = None
    estimated: bool = False
    """Whether that is by what is new among the jobs, since not all of them were counted."""
    came: float | None = None
    """The same, and below zero where jobs were counted late that left: a mean of it is right."""
    service_rate: float | None = None


class KindSample(Struct, kw_only=True, omit_defaults=True):
    """A kind: its percentiles over the last hour, its target, and how long its oldest waits."""

    durations: dict[str, float] = {}
    waits: dict[str, float] = {}
    oldest: float | None = None
    target: float | None = None
    paused: bool = False
    """Whether none of its jobs may start: it is paused, or each queue or key in which it waits."""


class Sample(Struct, kw_only=True):
    """What was true of the whole cluster at a moment."""

    at: float
    """When, by the store's clock."""
    by: str = ""
    seconds: float = 0.0
    """How long the store took to tell."""
    walk: int = 0
    """How many jobs of each state were looked at, at most."""
    queues: dict[str, QueueSample] = {}
    kinds: dict[str, KindSample] = {}
    breakers: dict[str, int] = {}
    limits: dict[str, int] = {}
    """How many tokens of each limit workers hold."""
    workers: dict[str, int] = {}
    schedule_lag: float = 0.0
    snapshot_age: float | None = None


def read_sample(record: Json | None) -> Sample | None:
    """Return what a record says; None if there is none, or none that this release can read."""
    try:
        return None if record is None else msgspec.convert(record, Sample)
    except msgspec.ValidationError:
        return None


def breakers_in(sample: Sample, state: BreakerState) -> tuple[str, ...]:
    """Return the names of the breakers that are in a state."""
    code = _BREAKERS[state]
    return tuple(sorted(name for name, each in sample.breakers.items() if each == code))


def is_rated(before: Sample, now: datetime) -> bool:
    """Say whether a sample is recent enough for its difference to one now to be a rate."""
    return 0 < now.timestamp() - before.at <= _RATED.total_seconds()


class Facts(Struct, kw_only=True):
    """All that a sample is made of, as the store told it."""

    now: datetime
    depths: Depths
    heads: Sequence[Head]
    workers: Sequence[WorkerRecord]
    pauses: Pauses
    stats: Mapping[str, Json]
    breakers: Mapping[str, Json] = {}
    limits: Mapping[str, Json] = {}
    targets: Mapping[str, Json] = {}
    ringing: Mapping[str, Json] = {}
    arrivals: Mapping[str, int] | None = None
    """How many jobs came into each queue since the last sample; None: nobody had to ask."""


def sampled(facts: Facts, before: Sample | None, *, by: str) -> Sample:
    """Make a sample; rates are the difference to the one before."""
    alive = [worker for worker in facts.workers if worker.alive]
    stats = {name: kind_stats.read_stats(record) for name, record in facts.stats.items()}
    made = Sample(
        at=facts.now.timestamp(),
        by=by,
        queues=_queues(facts, stats, alive),
        kinds=_kinds(facts, stats),
        breakers=_breakers(facts.breakers),
        limits=_limits(facts.limits),
        workers={
            state: sum(each.pulse.state == state for each in alive)
            for state in ("running", DRAINING)
        },
        schedule_lag=_lag(facts.ringing, facts.now),
        snapshot_age=facts.depths.snapshot_age,
    )
    if before is not None and is_rated(before, facts.now):
        _rate(made, before, facts.arrivals)
    return made


def _queues(
    facts: Facts, stats: Mapping[str, KindStats], alive: Sequence[WorkerRecord]
) -> dict[str, QueueSample]:
    weight: dict[str, float] = {}
    for each in facts.depths.counts:
        weight[each.queue] = weight.get(each.queue, 0.0) + each.count
    left = _left(stats.values())
    for name in (*left, *facts.pauses.queues, *(head.lane.queue for head in facts.heads)):
        weight.setdefault(name, 0.0)
    named = bounded(weight)
    queues: dict[str, QueueSample] = {name: QueueSample() for name in named.values()}
    for each in facts.depths.counts:
        queue = queues[named[each.queue]]
        state = each.state.value
        queue.jobs[state] = queue.jobs.get(state, 0) + each.count
        if each.capped and state not in queue.capped:
            queue.capped.append(state)
    for queue in queues.values():
        queue.capped += [each.value for each in facts.depths.cut if each.value not in queue.capped]
    for name, count in left.items():
        queues[named[name]].left += count
    for head in facts.heads:
        _note_head(queues[named[head.lane.queue]], head, facts, alive)
    for name, called in named.items():
        queues[called].workers = max(queues[called].workers, _serving(name, alive))
        queues[called].paused |= name in facts.pauses.queues
    return queues


def is_draining(worker: WorkerRecord) -> bool:
    """Say whether a worker ends what it has begun, and begins nothing any more."""
    return worker.pulse.state == DRAINING


def _note_head(queue: QueueSample, head: Head, facts: Facts, alive: Sequence[WorkerRecord]) -> None:
    waited = max((facts.now - head.position).total_seconds(), 0.0)
    # Else a kind that is paused on purpose would alarm for its queue, whose others are well.
    if any(what != "queue" for what, _ in facts.pauses.holding(head.lane)):
        queue.held = max(queue.held or 0.0, waited)
        return
    queue.oldest = max(queue.oldest or 0.0, waited)
    queue.unserved += not any(
        worker.info.serves(head.lane) for worker in alive if not is_draining(worker)
    )


def _serving(queue: str, alive: Sequence[WorkerRecord]) -> int:
    return sum(
        any(worker.info.serves(Lane(queue, kind, 0, "")) for kind in worker.info.kinds[:1])
        for worker in alive
        if not is_draining(worker)
    )


def _left(stats: Iterable[KindStats]) -> dict[str, int]:
    left: dict[str, int] = {}
    for each in stats:
        for queue, count in each.left.items():
            left[queue] = left.get(queue, 0) + count
    return left


def _kinds(facts: Facts, stats: Mapping[str, KindStats]) -> dict[str, KindSample]:
    kinds: dict[str, KindSample] = {}
    free: set[str] = set()
    for name, known in stats.items():
        lately = known.lately(facts.now)
        if lately.runs:
            kinds[name.removeprefix(kind_stats.RECORD)] = KindSample(
                durations=kind_stats.percentiles(lately.durations),
                waits=kind_stats.percentiles(lately.waits),
            )
    for head in facts.heads:
        kind = kinds.setdefault(head.lane.kind, KindSample())
        waited = max((facts.now - head.position).total_seconds(), 0.0)
        kind.oldest = max(kind.oldest or 0.0, waited)
        if not any(facts.pauses.holding(head.lane)):
            free.add(head.lane.kind)
    for name, record in facts.targets.items():
        told = record.get("target")
        if isinstance(told, int | float):
            kinds.setdefault(name.removeprefix(TARGETS), KindSample()).target = float(told)
    for name, kind in kinds.items():
        waits = kind.oldest is not None
        kind.paused = name in facts.pauses.kinds or (waits and name not in free)
    return dict(sorted(kinds.items(), key=_importance)[:NAMES])


def _importance(named: tuple[str, KindSample]) -> tuple[bool, float]:
    """Order kinds for when there are too many: those with a target, then those that wait."""
    kind = named[1]
    return kind.target is None, -1.0 if kind.oldest is None else -1.0 - kind.oldest


def _breakers(records: Mapping[str, Json]) -> dict[str, int]:
    """Tell the state of breakers; where there are too many, those first that are not closed."""
    states = {
        name.removeprefix(BREAKERS): _BREAKERS[read_status(name, record).state]
        for name, record in records.items()
    }
    return dict(sorted(states.items(), key=lambda each: -each[1])[:NAMES])


def _limits(records: Mapping[str, Json]) -> dict[str, int]:
    """Add up what workers hold of every limit, over all of its keys."""
    held: dict[str, int] = {}
    for record, accounts in records.items():
        name = record.removeprefix(LIMITS).partition("/")[0]
        if name not in held and len(held) >= NAMES:
            name = OTHER
        held[name] = held.get(name, 0) + sum(_held(each) for each in accounts.values())
    return held


def _held(account: Any) -> int:
    holds = account.get("holds", {}) if isinstance(account, dict) else {}
    return sum(count for keys in holds.values() for count in keys.values())


def _lag(ringing: Mapping[str, Json], now: datetime) -> float:
    """Return for how long the latest schedule is late, of those that ring or nobody serves."""
    lags = [_since(record.get("next"), now) for record in ringing.values()]
    return max(lags, default=0.0)


def _since(moment: object, now: datetime) -> float:
    try:
        if isinstance(moment, str):
            return max((now - datetime.fromisoformat(moment)).total_seconds(), 0.0)
        return max(now.timestamp() - float(moment), 0.0)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0


def _rate(sample: Sample, before: Sample, arrivals: Mapping[str, int] | None) -> None:
    """Say how fast jobs come and go: who is not there any more has left, who is new has come.

    Where not all were counted, their ids say how many are new. A queue that nobody knew before had
    nothing in it, unless there were so many that some were told as `other`.
    """
    seconds = sample.at - before.at
    nothing = None if len(before.queues) >= NAMES else QueueSample()
    newcomers = None if arrivals is None else _told_apart(arrivals, sample.queues)
    for name, queue in sample.queues.items():
        known = before.queues.get(name, nothing)
        if known is None:
            continue
        left = max(queue.left - known.left, 0)
        queue.service_rate = left / seconds
        if is_counted(queue) and is_counted(known):
            queue.came = (_alive(queue) - _alive(known) + left) / seconds
        elif newcomers is not None:
            queue.came, queue.estimated = newcomers.get(name, 0) / seconds, True
        if queue.came is not None:
            queue.arrival_rate = max(queue.came, 0.0)


def _told_apart(arrivals: Mapping[str, int], queues: Mapping[str, QueueSample]) -> dict[str, int]:
    told: dict[str, int] = {}
    for name, count in arrivals.items():
        called = name if name in queues else OTHER
        told[called] = told.get(called, 0) + count
    return told


def is_counted(queue: QueueSample) -> bool:
    """Say whether all jobs of a queue were counted but for the dead, which come and go nowhere."""
    return set(queue.capped) <= {State.DEAD.value}


def _alive(queue: QueueSample) -> int:
    return sum(count for state, count in queue.jobs.items() if state != State.DEAD.value)
