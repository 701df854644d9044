"""Owns the look at a crew at work: jobs a second, and what each takes of the CPUs and the log."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks.capacity.crew import Crew
from benchmarks.capacity.table import spread
from benchmarks.capacity.yards import Yard, fill, wait_for
from benchmarks.program import ProgramFailed

_RUNNING_IN = 0.3
_SELDOM = 0.1
_TICK = 1e-6


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What jobs took, as seen for a while."""

    jobs: int
    seconds: float
    worker_cpu: float
    server_cpu: float
    wal: int
    ran_dry: bool
    """Whether nothing was left at the end, so that the last jobs had few beside them."""

    def raw(self, case: str) -> dict[str, str | int | float | None]:
        """Tell all of it, under the name of its case."""
        return {"case": case, **asdict(self)}

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    @property
    def worker_micros(self) -> float:
        """CPU time of the crew a job, in microseconds."""
        return self.worker_cpu / self.jobs * 1e6

    @property
    def server_micros(self) -> float:
        """CPU time of the server a job, in microseconds."""
        return self.server_cpu / self.jobs * 1e6

    @property
    def wal_bytes(self) -> float:
        """Bytes of the server's log a job."""
        return self.wal / self.jobs


@dataclass(frozen=True)
class Rounds:
    """What jobs took in several rounds, one after the other."""

    each: Sequence[Figures]

    @property
    def whole(self) -> Figures:
        """All rounds as one, for what is steady from round to round: CPU time, and the log."""
        return Figures(
            jobs=sum(figures.jobs for figures in self.each),
            seconds=sum(figures.seconds for figures in self.each),
            worker_cpu=sum(figures.worker_cpu for figures in self.each),
            server_cpu=sum(figures.server_cpu for figures in self.each),
            wal=sum(figures.wal for figures in self.each),
            ran_dry=any(figures.ran_dry for figures in self.each),
        )

    @property
    def rates(self) -> str:
        """Jobs a second: the median of the rounds, the least and the greatest."""
        return spread([figures.rate for figures in self.each])

    @property
    def rate(self) -> float:
        """Jobs a second, the median of the rounds."""
        return statistics.median(figures.rate for figures in self.each)

    def raw(self, case: str) -> list[dict[str, str | int | float | None]]:
        """Tell all of every round, under the name of their case."""
        return [figures.raw(f"{case}, round {n}") for n, figures in enumerate(self.each, 1)]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What everybody had spent at a moment of the store's clock."""

    at: int
    worker_cpu: float
    server_cpu: float
    wal: int


def look(yard: Yard, crew: Crew) -> Look:
    """Look at a crew and its store."""
    crew.check()
    return Look(
        at=yard.clock(), worker_cpu=crew.cpu(), server_cpu=yard.server_cpu(), wal=yard.wal()
    )


def between(yard: Yard, first: Look, last: Look, *, ran_dry: bool) -> Figures:
    """Tell what the jobs took that ended between two looks, or until there were no more.

    Raises:
        ProgramFailed: None did.
    """
    jobs, ended = yard.finished(first.at, last.at)
    if not jobs:
        raise ProgramFailed("no job has ended while the crew was watched")
    seconds = max(((ended if ran_dry else last.at) - first.at) / 1e6, _TICK)
    return Figures(
        jobs=jobs,
        seconds=seconds,
        worker_cpu=last.worker_cpu - first.worker_cpu,
        server_cpu=last.server_cpu - first.server_cpu,
        wal=last.wal - first.wal,
        ran_dry=ran_dry,
    )


def serving(yard: Yard, crew: Crew, processes: int = 1) -> None:
    """Wait until all worker processes have registered."""

    def all_serve() -> bool:
        crew.check()
        return yard.workers() >= processes

    wait_for("workers that serve", all_serve)


def watch(
    yard: Yard,
    crew: Crew,
    *,
    jobs: int,
    seconds: float,
    rounds: int = 1,
    kind: str = "noop",
    payload: dict[str, Any] | None = None,
) -> Rounds:
    """Give work to a crew that idles, and look at it for some rounds when it has run in."""
    idle = look(yard, crew)
    fill(yard, jobs, kind, payload)
    wait_for("a first job", lambda: yard.finished(idle.at, yard.clock())[0] > 0)
    time.sleep(min(_RUNNING_IN, seconds))
    looks = [look(yard, crew)]
    for _ in range(rounds):
        time.sleep(seconds)
        looks.append(look(yard, crew))
    is_dry = yard.is_empty()
    worked = [pair for pair in pairwise(looks) if yard.finished(pair[0].at, pair[1].at)[0]]
    # All may have ended before the first look; then everything counts.
    *others, latest = worked or [(idle, looks[-1])]
    return Rounds(
        [
            *(between(yard, *pair, ran_dry=False) for pair in others),
            between(yard, *latest, ran_dry=is_dry),
        ]
    )


def watch_to_the_end(yard: Yard, crew: Crew) -> Figures:
    """Look at a crew from when it serves, until nothing is left of what it found."""
    start = look(yard, crew)
    serving(yard, crew)
    first = look(yard, crew)
    wait_for("the last job", yard.is_empty, _SELDOM)
    last = look(yard, crew)
    if not yard.finished(first.at, last.at)[0]:
        first = start  # All ended before the crew was seen to serve; then its start counts, too.
    return between(yard, first, last, ran_dry=True)
