"""Owns the state of a worker that does not run, for tests of single parts."""

from __future__ import annotations

from windlass.core.claims.plan import Policies
from windlass.core.claims.room import Pool
from windlass.core.records import Json
from windlass.worker.state import WorkerState


class RecordingState(WorkerState):
    """Keeps every sample of the cluster that it is given, with its age."""

    def __init__(self, worker: str = "w", *, slots: int = 1, **pools: Pool) -> None:
        super().__init__(Policies(kinds=pools), slots=slots)
        self.id = worker
        self.samples: list[tuple[Json, float]] = []

    def sampled(self, sample: Json, age: float) -> None:
        super().sampled(sample, age)
        self.samples.append((sample, age))
