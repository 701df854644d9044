"""Owns the producer's spans of jobs that schedules make: nobody's code enqueues those."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windlass.core.schedule import Rung
from windlass.observe.traces import tracing_in_force
from windlass.settings import Traces

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class TickSpans:
    """The spans of one look at some schedules. What does not come to be in the store has none."""

    def __init__(self, choice: Traces) -> None:
        self._tracing = tracing_in_force(choice)
        self._begun: list[Span] = []

    def begin(self) -> None:
        """Begin, maybe anew: a store that could not commit lets everything be decided again."""
        self._begun.clear()

    def around(self, rung: Rung) -> Rung:
        """Return what a schedule does, with jobs whose headers say where they come from."""
        if self._tracing is None or not rung.jobs:
            return rung
        jobs = []
        for job in rung.jobs:
            carrying, span = self._tracing.making(job)
            jobs.append(carrying)
            self._begun += [] if span is None else [span]
        return replace(rung, jobs=tuple(jobs))

    def end(self) -> None:
        """Let the spans be told: their jobs are in the store."""
        for span in self._begun:
            if self._tracing is not None:
                self._tracing.made(span)
