"""Owns the alarms: the problems that the figures show, the worst first; `windlass top` and the web
page show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from windlass.core.jobs.states import State
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.capacity import NEVER
from windlass.core.stats.stats import QueueFigures, Stats
from windlass.core.values import figures
from windlass.core.values.text import listed

FAILING_SHARE = 0.05
"""The share of failed runs from which a kind is marked."""
_MIN_RUNS = 5
"""Runs below which a share of failed ones means little."""
_MAX_SAMPLE_SECONDS = 30.0
"""Age of a sample after which a worker should have taken two more."""


class Alarm(Struct, frozen=True):
    """A problem; one that is not urgent is a warning."""

    text: str
    urgent: bool
    topic: Literal["worker", "queue", "breaker", "kind", "key", "dead", "stats"] = "stats"
    name: str = ""
    """The queue, breaker, kind or key that it is about; empty: all of them."""


def waiting(queue: QueueFigures) -> int:
    """Return how many jobs of a queue could run now."""
    return queue.jobs.get(State.PENDING.value, 0)


def never_empties(queue: QueueFigures) -> bool:
    """Return whether a queue grows although workers serve it."""
    return bool(queue.workers) and not queue.paused and is_never(queue)


def is_never(found: QueueFigures | Stats) -> bool:
    """Return whether a queue is known never to get empty, rather than unknown."""
    return NEVER in found.unknown.get("seconds_to_empty", "")


def find_alarms(stats: Stats, pauses: Pauses) -> list[Alarm]:
    """Return the problems, the urgent ones first."""
    alarms = [
        *_missing(stats),
        *_age(stats),
        *_queues(stats),
        *_breakers(stats),
        *_kinds(stats),
        *_capacity(stats),
        *_pauses(stats, pauses),
    ]
    return sorted(alarms, key=lambda alarm: not alarm.urgent)


def _missing(stats: Stats) -> Iterator[Alarm]:
    if not stats.workers:
        waits = sum(map(waiting, stats.queues))
        text = f"no worker is running, and {_jobs(waits)}" if waits else "no worker is running"
        yield Alarm(f"{text}: windlass worker module:attribute", urgent=bool(waits), topic="worker")


def _age(stats: Stats) -> Iterator[Alarm]:
    if stats.count_age:
        ago = figures.span(stats.count_age)
        yield Alarm(f"counting takes too long; queue sizes are {ago} old", urgent=False)
    elif stats.sample_age is not None and stats.sample_age > _MAX_SAMPLE_SECONDS:
        yield Alarm(
            f"no worker has sampled for {figures.span(stats.sample_age)}; rates are that old",
            urgent=False,
        )


def _queues(stats: Stats) -> Iterator[Alarm]:
    for queue in sorted(stats.queues, key=lambda queue: -waiting(queue)):
        if not waiting(queue) or queue.paused:
            continue
        if not queue.workers and stats.workers:
            yield Alarm(
                f"no worker serves queue {queue.name}, and {_jobs(waiting(queue))}",
                urgent=True,
                topic="queue",
                name=queue.name,
            )
            continue
        if queue.workers and queue.unserved:
            yield Alarm(
                f"queue {queue.name} has jobs of kinds that no worker handles",
                urgent=True,
                topic="queue",
                name=queue.name,
            )
        if never_empties(queue) and queue.arrival_rate:
            came, left = figures.rate(queue.arrival_rate), figures.rate(queue.service_rate)
            yield Alarm(
                f"queue {queue.name} grows: {came}/s in, {left}/s out",
                urgent=True,
                topic="queue",
                name=queue.name,
            )
        elif _stands_still(queue):
            yield Alarm(
                f"queue {queue.name} is stuck: no jobs in or out, and {_jobs(waiting(queue))}",
                urgent=False,
                topic="queue",
                name=queue.name,
            )


def _stands_still(queue: QueueFigures) -> bool:
    """Return whether jobs wait for no reason that another alarm gives."""
    still = queue.arrival_rate == 0 and queue.service_rate == 0
    runs = queue.jobs.get(State.RUNNING.value, 0)
    shrinks = queue.seconds_to_empty is not None
    return still and bool(queue.workers) and not (runs or queue.unserved or shrinks)


def _breakers(stats: Stats) -> Iterator[Alarm]:
    for state, names in (("open", stats.breakers), ("half-open", stats.half_open)):
        if names:
            what, are = ("breaker", "is") if len(names) == 1 else ("breakers", "are")
            text = f"{what} {listed(names, 3)} {are} {state}: windlass breakers list"
            name = names[0] if len(names) == 1 else ""
            yield Alarm(text, urgent=state == "open", topic="breaker", name=name)


def _kinds(stats: Stats) -> Iterator[Alarm]:
    for each in stats.kinds:
        if each.error_rate is None or each.error_rate < FAILING_SHARE or each.runs < _MIN_RUNS:
            continue
        why = next((error.error for error in stats.errors if error.kind == each.name), "")
        text = f"{figures.share(each.error_rate)} of the runs of {each.name} fail"
        yield Alarm(
            f"{text}: {why}" if why else text,
            urgent=each.error_rate >= 0.5,
            topic="kind",
            name=each.name,
        )
    died = sum(each.dead for each in stats.kinds)
    if died:
        jobs = "1 job" if died == 1 else f"{figures.count(died)} jobs"
        yield Alarm(f"{jobs} died in the last hour", urgent=False, topic="dead")


def _capacity(stats: Stats) -> Iterator[Alarm]:
    waits = sum(map(waiting, stats.queues))
    if waits and stats.slots and (stats.slots_needed or 0) > stats.slots:
        yield Alarm(
            f"{figures.rate(stats.slots_needed)} slots are needed, but there are {stats.slots}",
            urgent=True,
            topic="worker",
        )
    elif waits and stats.slots and stats.busy >= stats.slots:
        yield Alarm(
            f"all {stats.slots} slots are busy, and {_jobs(waits)}", urgent=False, topic="worker"
        )
    yield from _pools(stats)
    if stats.workers and stats.arrival_rate is None:
        why = stats.unknown.get("arrival_rate", "no worker has counted yet")
        yield Alarm(f"rates are unknown: {why}", urgent=False)
    for each in stats.workers:
        if each.pool is not None and each.pool.in_use >= each.pool.limit:
            yield Alarm(
                f"worker {each.id} uses all of its {each.pool.limit} connections",
                urgent=False,
                topic="worker",
            )


def _pools(stats: Stats) -> Iterator[Alarm]:
    short = {each.pool: each for each in stats.short}
    for name, flag, needed, size in (
        ("threads", "--threads", stats.threads_needed, stats.threads),
        (
            "isolated_processes",
            "--isolated-processes",
            stats.isolated_processes_needed,
            stats.isolated_processes,
        ),
    ):
        if name in short:
            lacking = size and (needed or 0) > size
            needs = f"; {figures.rate(needed)} are needed" if lacking else ""
            text = f"{short[name].message}{needs}: {flag} N"
            yield Alarm(text, urgent=bool(lacking), topic="worker")


def _pauses(stats: Stats, pauses: Pauses) -> Iterator[Alarm]:
    depths = {each.name: waiting(each) for each in stats.queues}
    for what, name in pauses:
        held = f", and {_jobs(depths[name])}" if what == "queue" and depths.get(name) else ""
        yield Alarm(f"{what} {name} is paused{held}", urgent=False, topic=what, name=name)


def _jobs(number: int) -> str:
    return "1 job waits" if number == 1 else f"{figures.count(number)} jobs wait"
