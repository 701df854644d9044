"""Owns what steps cost on PostgreSQL: jobs of ten steps, each recorded, against jobs of none."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import fill, rate, reach

STEPS = Measure(name="drain, ten steps a job", unit="jobs/s")
_SLOTS = 500
_BAR = 1 / 12
_FEWER = 5
"""A round has so many times fewer jobs of ten steps: it is to take no longer than the others."""


def steps(field: Field) -> list[Race]:
    """Run jobs of ten steps, and no-op jobs, in as many slots."""
    plain, stepped = field.take_turns(
        "steps",
        [
            (field.ours, _ends(field, "noop", field.sizes.jobs)),
            (field.ours, _ends(field, "ten_steps", field.sizes.jobs // _FEWER)),
        ],
    )
    return [
        Race(
            measure=STEPS,
            ours=stepped.score(float, name=f"Windlass, {_SLOTS} slots"),
            rivals=[Rival(score=plain.score(float, name="no-op jobs"), bar=_BAR)],
        )
    ]


def _ends(field: Field, kind: str, jobs: int) -> Callable[[Entrant], float]:
    """Return the measure of how fast jobs of a kind come to the end of their handlers."""

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            fill(room, jobs, kind=kind)
            with room.program() as worker:
                worker.ask("work", slots=_SLOTS)
                reach(worker, jobs)
                ends: list[int] = worker.ask("stop")
        return rate(ends[:jobs])

    return measure
