"""Owns that what a program's own meters raise never reaches a job: it is logged, and goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from windlass.core.job import Job
from windlass.core.settle import Transition
from windlass.observe.figures import Figures
from windlass.observe.logs import get_logger
from windlass.observe.meters import Meters, Tallies

log = get_logger("windlass.metrics")


def guarded(meters: Meters) -> Meters:
    """Return meters that a worker can tell anything without minding what comes of it."""
    return meters if type(meters) is Meters else Guarded(meters)


class Guarded(Meters):
    """Passes on what it is told. What one method raises is logged the first time only."""

    def __init__(self, meters: Meters) -> None:
        super().__init__()
        self._guarded = meters
        self._broken: set[str] = set()

    def claimed(self, jobs: Sequence[Job], seconds: float) -> None:
        self._pass("claimed", lambda: self._guarded.claimed(jobs, seconds))

    def ran(self, job: Job, seconds: float) -> None:
        self._pass("ran", lambda: self._guarded.ran(job, seconds))

    def settled(self, job: Job, move: Transition) -> None:
        self._pass("settled", lambda: self._guarded.settled(job, move))

    def parked(self, job: Job) -> None:
        self._pass("parked", lambda: self._guarded.parked(job))

    def fenced(self, job: Job) -> None:
        self._pass("fenced", lambda: self._guarded.fenced(job))

    def called(self, call: str, seconds: float, jobs: int | None = None) -> None:
        self._pass("called", lambda: self._guarded.called(call, seconds, jobs))

    def call_failed(self, call: str) -> None:
        self._pass("call_failed", lambda: self._guarded.call_failed(call))

    @property
    def tallies(self) -> list[Tallies]:
        return self._pass("tallies", lambda: self._guarded.tallies) or []

    def figures(self) -> Figures:
        return self._pass("figures", self._guarded.figures) or Figures()

    def _pass(self, name: str, tell: Callable[[], Any]) -> Any:
        try:
            return tell()
        except Exception:
            if name not in self._broken:
                self._broken.add(name)
                remedy = "mend the method; it is called on, and not logged again"
                meters = type(self._guarded).__qualname__
                log.exception("meters.failed", meters=meters, method=name, remedy=remedy)
            return None
