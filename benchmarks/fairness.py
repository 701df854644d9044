"""Owns what fairness costs: the jobs of many tenants, who take turns or do not."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.peers.windlass_postgres import TENANTS
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import fill, rate, reach

TURNS = Measure(name=f"drain of {TENANTS:,} tenants", unit="jobs/s")


def fairness(field: Field) -> list[Race]:
    """Drain jobs of a thousand tenants who take turns, and the same without turns or keys."""
    fair, plain = field.take_turns(
        TURNS.name,
        [(field.ours, _drain(field, "fair")), (field.ours, _drain(field, "tenanted"))],
    )
    return [
        Race(
            measure=TURNS,
            ours=fair.score(float, name="Windlass, in turn"),
            rivals=[Rival(score=plain.score(float, name="as they come"), bar=0.8)],
        )
    ]


def _drain(field: Field, kind: str) -> Callable[[Entrant], float]:
    jobs = field.sizes.jobs

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            fill(room, jobs, kind=kind)
            with room.program() as worker:
                worker.ask("work")
                reach(worker, jobs)
                emptied = room.wait_until_empty()
                starts: list[int] = worker.ask("stop")
        return rate([*starts, emptied])

    return measure
