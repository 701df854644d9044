"""Owns what it costs to be observed: metrics that are scraped, and logs at info to a file."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.entrants import Entrant, in_python
from benchmarks.field import Field
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import fill, rate, reach

MEASURED = Measure(name="drain, metrics", unit="jobs/s")
OBSERVED = Measure(name="drain, metrics and logs", unit="jobs/s")
_MODULE = "benchmarks.peers.windlass_observed"
_BAR = 0.85


def observing(field: Field) -> list[Race]:
    """Drain jobs with nobody watching, with metrics, and with metrics and logs at info."""
    base, measured, observed = field.take_turns(
        "observing",
        [
            (in_python(f"{_MODULE}:{name}"), _drain(field))
            for name in ("WindlassUnobserved", "WindlassMeasured", "WindlassObserved")
        ],
    )
    unobserved = base.score(float)
    return [
        Race(
            measure=MEASURED,
            ours=measured.score(float),
            rivals=[Rival(score=unobserved, bar=_BAR)],
        ),
        Race(
            measure=OBSERVED,
            ours=observed.score(float),
            rivals=[Rival(score=unobserved, bar=_BAR)],
        ),
    ]


def _drain(field: Field) -> Callable[[Entrant], float]:
    jobs = field.sizes.jobs

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            fill(room, jobs)
            with room.program() as worker:
                worker.ask("work")
                reach(worker, jobs)
                emptied = room.wait_until_empty()
                starts: list[int] = worker.ask("stop")
        return rate([*starts, emptied])

    return measure
