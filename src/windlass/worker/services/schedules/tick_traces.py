"""Owns the producer spans of jobs that schedules make, since no user code enqueues those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from windlass.core.schedules.schedule import Rung
from windlass.observability.traces import tracing_in_force
from windlass.settings import Traces

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class TickTraces:
    """The spans of one look at some schedules. A job that is not stored in the end has none."""

    def __init__(self, choice: Traces) -> None:
        self._tracing = tracing_in_force(choice)
        self._begun: list[Span] = []

    def begin(self) -> None:
        """Begin, possibly again: if the store could not commit, everything is decided again."""
        self._begun.clear()

    def around(self, rung: Rung) -> Rung:
        """Return the result of a tick with trace headers on its jobs."""
        if self._tracing is None or not rung.jobs:
            return rung
        jobs = []
        for job in rung.jobs:
            carrying, span = self._tracing.making(job)
            jobs.append(carrying)
            self._begun += [] if span is None else [span]
        return replace(rung, jobs=tuple(jobs))

    def end(self) -> None:
        """Export the spans: their jobs are in the store."""
        for span in self._begun:
            if self._tracing is not None:
                self._tracing.made(span)
