"""Owns the cluster-wide figures: how they are computed from the store's data, and kept.

One worker at a time samples, at most every `EVERY`, and keeps the result in the record
`sample:cluster`; `sample:turn` holds the time of the last turn. Everybody else reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from windlass.core.claims.lanes import Head
from windlass.core.jobs.job import Lane
from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import NAMES, OTHER, bounded
from windlass.core.policies.breaker_record import RECORD as BREAKERS
from windlass.core.policies.breaker_record import BreakerState, read_status
from windlass.core.policies.limit import RECORD as LIMITS
from windlass.core.policies.pauses import Pauses
from windlass.core.policies.slo import TARGETS
from windlass.core.records import Json
from windlass.core.stats import kind_history
from windlass.core.stats.depths import Depths, Disk
from windlass.core.stats.kind_history import KindStats
from windlass.core.stats.shortage import shortages
from windlass.core.workers import WorkerRecord

PREFIX = "sample:"
TURN = "sample:turn"
CLUSTER = "sample:cluster"
EVERY = timedelta(seconds=15)
_RATED = 4 * EVERY
"""The age at which a sample is too old for rates: a mean over hours says nothing of the present."""
_WALK, _LEAST_WALK, _MOST_WALK = 60_000, 5_000, 500_000
_FAST_SECONDS, _SLOW_SECONDS = 0.1, 0.3
DRAINING = "draining"
_BREAKERS = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class QueueSample(Struct, kw_only=True, omit_defaults=True):
    """A queue: its jobs by state, the waits of its heads, its workers."""

    jobs: dict[str, int] = {}
    capped: list[str] = []
    """The states with more jobs than were counted."""
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
    """Whether the rate is estimated from new ids, since not all jobs were counted."""
    came: float | None = None
    """The same, and below zero where departures were counted late: its mean is right."""
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
    """The state of the whole cluster at a moment."""

    at: float
    """When, by the store's clock."""
    by: str = ""
    seconds: float = 0.0
    """How long the store took to answer."""
    walk: int = 0
    """The most jobs of each state that were counted."""
    queues: dict[str, QueueSample] = {}
    kinds: dict[str, KindSample] = {}
    breakers: dict[str, int] = {}
    pinned: tuple[str, ...] = ()
    """The breakers that a person forces open or closed."""
    limits: dict[str, int] = {}
    """How many tokens of each limit workers hold."""
    short: dict[str, list[str]] = {}
    """The kinds whose jobs wait for `threads`, or `isolated_processes`, that are all in use."""
    workers: dict[str, int] = {}
    schedule_lag: float = 0.0
    snapshot_age: float | None = None
    disk: Disk | None = None
    findings: tuple[str, ...] = ()
    """Names of what is wrong with the store."""


def read_sample(record: Json | None) -> Sample | None:
    """Return the sample in a record; None if there is none, or none that this release can read."""
    try:
        return None if record is None else msgspec.convert(record, Sample)
    except msgspec.ValidationError:
        return None


def breakers_in(sample: Sample, state: BreakerState) -> tuple[str, ...]:
    code = _BREAKERS[state]
    return tuple(sorted(name for name, each in sample.breakers.items() if each == code))


def is_rated(before: Sample, now: datetime) -> bool:
    """Return whether a sample is recent enough for its difference to one now to be a rate."""
    return 0 < now.timestamp() - before.at <= _RATED.total_seconds()


class SampleInputs(Struct, kw_only=True):
    """The data of a sample, as the store returned it."""

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
    disk: Disk | None = None
    findings: tuple[str, ...] = ()
    arrivals: Mapping[str, int] | None = None
    """How many jobs came into each queue since the last sample; None: it was not needed."""


def sampled(facts: SampleInputs, before: Sample | None, *, by: str) -> Sample:
    """Make a sample; rates are the differences to the last one."""
    alive = [worker for worker in facts.workers if worker.alive]
    stats = {name: kind_history.read_stats(record) for name, record in facts.stats.items()}
    made = Sample(
        at=facts.now.timestamp(),
        by=by,
        queues=_queues(facts, stats, alive),
        kinds=_kinds(facts, stats),
        breakers=_breakers(facts.breakers),
        pinned=_pinned(facts.breakers),
        limits=_limits(facts.limits),
        short=_short(facts),
        workers={
            state: sum(each.pulse.state == state for each in alive)
            for state in ("running", DRAINING)
        },
        schedule_lag=_lag(facts.ringing, facts.now),
        snapshot_age=facts.depths.snapshot_age,
        disk=facts.disk,
        findings=facts.findings,
    )
    if before is not None and is_rated(before, facts.now):
        _rate(made, before, facts.arrivals)
    return made


def counted(facts: SampleInputs) -> Sample:
    """Make a sample of counts alone: queues and breakers, without rates and percentiles."""
    alive = [worker for worker in facts.workers if worker.alive]
    stats = {name: kind_history.read_stats(record) for name, record in facts.stats.items()}
    return Sample(
        at=facts.now.timestamp(),
        queues=_queues(facts, stats, alive),
        breakers=_breakers(facts.breakers),
    )


def _queues(
    facts: SampleInputs, stats: Mapping[str, KindStats], alive: Sequence[WorkerRecord]
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
    """Return whether a worker finishes its jobs and claims no more."""
    return worker.pulse.state == DRAINING


def _note_head(
    queue: QueueSample, head: Head, facts: SampleInputs, alive: Sequence[WorkerRecord]
) -> None:
    waited = max((facts.now - head.position).total_seconds(), 0.0)
    # Otherwise a kind that is paused on purpose would raise an alarm for its whole queue.
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


def _kinds(facts: SampleInputs, stats: Mapping[str, KindStats]) -> dict[str, KindSample]:
    kinds: dict[str, KindSample] = {}
    free: set[str] = set()
    for name, known in stats.items():
        lately = known.lately(facts.now)
        if lately.runs:
            kinds[name.removeprefix(kind_history.RECORD)] = KindSample(
                durations=kind_history.percentiles(lately.durations),
                waits=kind_history.percentiles(lately.waits),
            )
    for head in facts.heads:
        kind = kinds.setdefault(head.lane.kind, KindSample())
        waited = max((facts.now - head.position).total_seconds(), 0.0)
        kind.oldest = max(kind.oldest or 0.0, waited)
        if not any(facts.pauses.holding(head.lane)):
            free.add(head.lane.kind)
    for name, record in facts.targets.items():
        target = record.get("target")
        if isinstance(target, int | float):
            kinds.setdefault(name.removeprefix(TARGETS), KindSample()).target = float(target)
    for name, kind in kinds.items():
        waits = kind.oldest is not None
        kind.paused = name in facts.pauses.kinds or (waits and name not in free)
    return dict(sorted(kinds.items(), key=_importance)[:NAMES])


def _importance(named: tuple[str, KindSample]) -> tuple[bool, float]:
    # Sort key where there are too many kinds: those with a target first, then those that wait.
    kind = named[1]
    return kind.target is None, -1.0 if kind.oldest is None else -1.0 - kind.oldest


def _breakers(records: Mapping[str, Json]) -> dict[str, int]:
    states = {
        name.removeprefix(BREAKERS): _BREAKERS[read_status(name, record).state]
        for name, record in records.items()
    }
    return dict(sorted(states.items(), key=lambda each: -each[1])[:NAMES])


def _pinned(records: Mapping[str, Json]) -> tuple[str, ...]:
    # Only forced breakers are named one by one; they are few.
    names = [name for name, record in records.items() if read_status(name, record).forced]
    return tuple(sorted(name.removeprefix(BREAKERS) for name in names)[:NAMES])


def _limits(records: Mapping[str, Json]) -> dict[str, int]:
    held: dict[str, int] = {}
    for record, accounts in records.items():
        name = record.removeprefix(LIMITS).partition("/")[0]
        if name not in held and len(held) >= NAMES:
            name = OTHER
        held[name] = held.get(name, 0) + sum(_held(each) for each in accounts.values())
    return held


def _short(facts: SampleInputs) -> dict[str, list[str]]:
    waiting = [head.lane for head in facts.heads]
    found = shortages(facts.workers, waiting, facts.pauses)
    return {each.pool: list(each.kinds[:NAMES]) for each in found}


def _held(account: Any) -> int:
    holds = account.get("holds", {}) if isinstance(account, dict) else {}
    return sum(count for keys in holds.values() for count in keys.values())


def _lag(ringing: Mapping[str, Json], now: datetime) -> float:
    """Return the greatest lateness of the schedules that are due or that no worker serves."""
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
    """Return the rates of arrival and departure between two counts.

    Where not all jobs were counted, their ids give the number of new ones. A queue that is new in
    this sample was empty before, unless the last sample left queues out as `other`.
    """
    seconds = sample.at - before.at
    nothing = None if len(before.queues) >= NAMES else QueueSample()
    newcomers = None if arrivals is None else _by_queue(arrivals, sample.queues)
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


def _by_queue(arrivals: Mapping[str, int], queues: Mapping[str, QueueSample]) -> dict[str, int]:
    by_queue: dict[str, int] = {}
    for name, count in arrivals.items():
        called = name if name in queues else OTHER
        by_queue[called] = by_queue.get(called, 0) + count
    return by_queue


def is_counted(queue: QueueSample) -> bool:
    """Return whether all jobs of a queue were counted but for the dead."""
    return set(queue.capped) <= {State.DEAD.value}


def _alive(queue: QueueSample) -> int:
    return sum(count for state, count in queue.jobs.items() if state != State.DEAD.value)


def walk_after(before: Sample | None) -> int:
    """Return how many jobs of each state the next sample may count, by the speed of the last one.

    Only a sample that was cut short shows how fast the store could be.
    """
    if before is None or not before.walk:
        return _WALK
    if before.seconds > _SLOW_SECONDS:
        return max(before.walk // 2, _LEAST_WALK)
    if not any(queue.capped for queue in before.queues.values()):
        return min(max(before.walk, _LEAST_WALK), _WALK)
    return min(before.walk * 2, _MOST_WALK) if before.seconds < _FAST_SECONDS else before.walk


def walk_of_turn(before: Sample | None, turn: Json | None) -> int:
    """Return how many jobs a sample may count; half as many after a turn that did not finish."""
    tried = (turn or {}).get("walk")
    if not isinstance(tried, int):
        return walk_after(before)
    return max(min(tried // 2, walk_after(before)), _LEAST_WALK)
