"""Owns what limits cost on PostgreSQL: such as do not bind, and a backlog behind one that does."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import fill, rate, reach

CONCURRENCY = Measure(name="drain, concurrency limit", unit="jobs/s")
RATE = Measure(name="drain, rate limit", unit="jobs/s")
BACKLOG = Measure(name="drain past limited jobs", unit="jobs/s")
_BAR, _BACKLOG_BAR = 0.8, 0.9


def limits(field: Field) -> list[Race]:
    """Start jobs under limits that do not bind, and others past a backlog of limited ones."""
    backlog = field.sizes.unknown
    free, bounded, paced, past = field.take_turns(
        "limits",
        [
            (field.ours, _starts(field, "noop")),
            (field.ours, _starts(field, "bounded")),
            (field.ours, _starts(field, "paced")),
            (field.ours, _starts(field, "noop", blocked=backlog)),
        ],
    )
    base = free.score(float, name="without a limit")
    return [
        Race(
            measure=CONCURRENCY,
            ours=bounded.score(float, name="Windlass, as many as its slots"),
            rivals=[Rival(score=base, bar=_BAR)],
        ),
        Race(
            measure=RATE,
            ours=paced.score(float, name="Windlass, 1,000,000/s"),
            rivals=[Rival(score=base, bar=_BAR)],
        ),
        Race(
            measure=BACKLOG,
            ours=past.score(float, name=f"Windlass, {backlog:,} limited in front"),
            rivals=[Rival(score=base, bar=_BACKLOG_BAR)],
        ),
    ]


def _starts(field: Field, kind: str, *, blocked: int = 0) -> Callable[[Entrant], float]:
    """Return the measure of how fast jobs of a kind start, with so many others in front."""
    jobs = field.sizes.jobs

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            if blocked:
                fill(room, blocked, kind="blocked")
            fill(room, jobs, kind=kind)
            with room.program() as worker:
                worker.ask("work")
                reach(worker, jobs)
                starts: list[int] = worker.ask("stop")
        return rate(starts[:jobs])

    return measure
