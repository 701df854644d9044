"""Owns the races of Windlass on Redis against itself: durable files, long queues, finished jobs,
contention.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.entrants import Entrant
from benchmarks.program import ProgramFailed
from benchmarks.redis.field import Field
from benchmarks.report import Measure, Race, Rival, Score, percentile
from benchmarks.timings import FOREVER, Filled, fill, fill_and_drain, rate, reach

AOF_DRAIN = Measure(name="drain, AOF always", unit="jobs/s")
AOF_BULK = Measure(name="bulk enqueue, AOF always", unit="jobs/s")
WAITING = Measure(name="claims from a long queue", unit="jobs/s")
FINISHED = Measure(name="drain beside finished jobs", unit="jobs/s")
CONTENTION = Measure(name="16 contend for one record", unit="changes/s")
CONTENTION_WAIT = Measure(name="16 contend, p99", unit="ms", lower_is_better=True)
_KEPT_JOBS = 100_000
"""How many finished jobs the store keeps."""
_PROCESSES = 4
_TASKS = 4
_WAIT_BAR = 20.0


# -- durable files ---------------------------------------------------------------------------------


def aof(field: Field) -> list[Race]:
    """Fill and drain on servers that write every change to a file, at once or each second."""
    always, everysec, none = field.take_turns(
        "append-only file",
        [
            (field.ours, _durably(field, appendonly="yes", appendfsync="always")),
            (field.ours, _durably(field, appendonly="yes", appendfsync="everysec")),
            (field.ours, _durably(field)),
        ],
    )
    races = []
    figures: list[tuple[Measure, Callable[[Filled], float], float]] = [
        (AOF_DRAIN, lambda it: it.drain, 0.75),
        (AOF_BULK, lambda it: it.bulk, 0.85),
    ]
    for measure, figure, bar in figures:
        rivals = [
            Rival(score=none.score(figure, name="no file"), bar=bar),
            Rival(score=everysec.score(figure, name="AOF everysec")),
        ]
        ours = always.score(figure, name="Windlass, AOF always")
        races.append(Race(measure=measure, ours=ours, rivals=rivals))
    return races


def _durably(field: Field, **config: str) -> Callable[[Entrant], Filled]:
    def measure(entrant: Entrant) -> Filled:
        with field.arena.room(entrant, **config) as room:
            return fill_and_drain(room, field.sizes.jobs, patience=FOREVER)

    return measure


# -- a long queue ----------------------------------------------------------------------------------


def waiting(field: Field) -> list[Race]:
    """Claim while a million jobs wait behind."""
    sizes = field.sizes
    many, few = field.take_turns(
        "long queues",
        [(field.ours, _claims(field, sizes.many)), (field.ours, _claims(field, sizes.few))],
    )
    return [
        Race(
            measure=WAITING,
            ours=many.score(float, name=f"Windlass, {sizes.many:,} behind"),
            rivals=[Rival(score=few.score(float, name=f"{sizes.few:,} behind"), bar=0.9)],
        )
    ]


def _claims(field: Field, behind: int) -> Callable[[Entrant], float]:
    jobs = field.sizes.jobs

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            fill(room, jobs + behind)
            with room.program() as worker:
                worker.ask("work")
                reach(worker, jobs)
                starts: list[int] = worker.ask("stop")
        return rate(starts[:jobs])

    return measure


# -- finished jobs ---------------------------------------------------------------------------------


def finished(field: Field) -> list[Race]:
    """Drain while as many finished jobs have to be deleted as come to an end."""
    finished_before = _KEPT_JOBS + field.sizes.jobs
    full, empty = field.take_turns(
        "finished jobs",
        [
            (field.ours, _drains_beside(field, finished_before)),
            (field.ours, _drains_beside(field, 0)),
        ],
    )
    return [
        Race(
            measure=FINISHED,
            ours=full.score(float, name=f"Windlass, {finished_before:,} finished"),
            rivals=[Rival(score=empty.score(float, name="none finished"), bar=0.8)],
        )
    ]


def _drains_beside(field: Field, jobs_before: int) -> Callable[[Entrant], float]:
    jobs = field.sizes.jobs

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            if jobs_before:
                fill_and_drain(room, jobs_before, patience=FOREVER)
            return fill_and_drain(room, jobs, patience=FOREVER).drain

    return measure


# -- contention ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Contention:
    """How fast records were changed, and how long a change took, in milliseconds."""

    rate: float
    p99: float


def contention(field: Field) -> list[Race]:
    """Let sixteen clients change one record, and sixteen records."""
    one, apart = field.take_turns(
        "contention",
        [(field.ours, _contend(field, apart=False)), (field.ours, _contend(field, apart=True))],
    )
    allowed = Score(name="allowed", rounds=[_WAIT_BAR])
    return [
        Race(
            measure=CONTENTION,
            ours=one.score(lambda it: it.rate, name="Windlass, one record"),
            rivals=[Rival(score=apart.score(lambda it: it.rate, name="16 records"), bar=0.25)],
        ),
        Race(
            measure=CONTENTION_WAIT,
            ours=one.score(lambda it: it.p99, name="Windlass, one record"),
            rivals=[
                Rival(score=allowed, bar=1.0),
                Rival(score=apart.score(lambda it: it.p99, name="16 records")),
            ],
        ),
    ]


def _contend(field: Field, *, apart: bool) -> Callable[[Entrant], Contention]:
    count = field.sizes.contentions
    names = [
        [f"race:{process}-{task}" if apart else "race" for task in range(_TASKS)]
        for process in range(_PROCESSES)
    ]

    def measure(entrant: Entrant) -> Contention:
        with field.arena.room(entrant) as room, ExitStack() as stack:
            clients = [stack.enter_context(room.program()) for _ in names]
            for client, own in zip(clients, names, strict=True):
                client.ask("contend", names=own, count=1)
            began = time.perf_counter()
            for client, own in zip(clients, names, strict=True):
                client.tell("contend", names=own, count=count)
            took = [wait for client in clients for wait in client.hear()]
            seconds = time.perf_counter() - began
            total = clients[0].ask("total", prefix="race")
        expected = _PROCESSES * _TASKS * (count + 1)
        if total != expected:
            raise ProgramFailed(f"{total} of {expected} changes are in the records")
        return Contention(rate=len(took) / seconds, p99=percentile(took, 0.99) * 1e3)

    return measure
