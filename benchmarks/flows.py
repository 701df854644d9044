"""Owns what flows cost: ten thousand jobs that one waits for, and the same without that one."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.database import Room
from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import reach

_BAR = 0.33


def flows(field: Field) -> list[Race]:
    """Enqueue and drain jobs whose results one more job gets, and as many plain ones."""
    count = field.sizes.fan_in
    measure = Measure(name=f"fan-in of {count:,}", unit="jobs/s")
    joined, plain = field.take_turns(
        measure.name,
        [(field.ours, _pass(field, fans_in=True)), (field.ours, _pass(field, fans_in=False))],
    )
    return [
        Race(
            measure=measure,
            ours=joined.score(float, name="Windlass, results handed on"),
            rivals=[Rival(score=plain.score(float, name="plain jobs"), bar=_BAR)],
        )
    ]


def _pass(field: Field, *, fans_in: bool) -> Callable[[Entrant], float]:
    """Return the measure of jobs a second, from the enqueue to the end of the last."""
    jobs = field.sizes.fan_in

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            enqueued = _enqueue(room, jobs, fans_in=fans_in)
            with room.program() as worker:
                worker.ask("work")
                reach(worker, jobs + 1)
                emptied = room.wait_until_empty()
                starts: list[int] = worker.ask("stop")
        return jobs / (enqueued + (emptied - starts[0]) / 1e9)

    return measure


def _enqueue(room: Room, jobs: int, *, fans_in: bool) -> float:
    """Return the seconds that the enqueue takes; there is one job more than are counted."""
    with room.program() as producer:
        if fans_in:
            seconds: float = producer.ask("fan_in", count=jobs)
        else:
            seconds = producer.ask("bulk", count=jobs + 1)
    room.tidy()
    return seconds
