"""What a worker finds wrong with its store is exposed by every worker, for alerts."""

from __future__ import annotations

import asyncio

from tests.support.app_on_store import Through
from tests.support.worker_state import RecordingState
from windlass.core.jobs.queries import Finding, Retention
from windlass.core.metrics.cluster_series import series_of
from windlass.store.memory import MemoryStore
from windlass.worker.services.cluster_sampler import ClusterSampler
from windlass.worker.services.housekeeping import Pruner


class Troubled(Through):
    """A store with problems, one of which has no name."""

    async def findings(self) -> list[Finding]:
        return [
            Finding(name="replica_behind", problem="one is behind", remedy="see its log"),
            Finding(name="replica_behind", problem="another is behind", remedy="see its log"),
            Finding(problem="this process hears nothing", remedy="see its log"),
        ]


def test_findings_are_counted_by_their_names() -> None:
    async def main() -> None:
        state, store = RecordingState(), Troubled(MemoryStore())
        await Pruner(store, Retention(), state=state).tick()
        await ClusterSampler(store, state=state).tick()
        (sample, _) = state.samples[-1]
        found = series_of(sample, age=0)["windlass_store_findings"]
        assert found == {("replica_behind",): 2.0}

    asyncio.run(main())


def test_a_finding_that_is_over_is_counted_no_more() -> None:
    async def main() -> None:
        state = RecordingState()
        await Pruner(Troubled(MemoryStore()), Retention(), state=state).tick()
        assert state.store_findings
        await Pruner(MemoryStore(), Retention(), state=state).tick()
        assert state.store_findings == ()

    asyncio.run(main())
