"""`app.stats()` tells what workers sampled lately; where none did, it counts and knows no rates."""

from __future__ import annotations

import asyncio

from tests.support.app_on_store import Clock
from tests.support.worker_state import RecordingState
from windlass import Stats, Windlass
from windlass.core.changes import Changes
from windlass.core.records import Json
from windlass.core.stats.cluster_sample import CLUSTER
from windlass.core.stats.sample_history import HISTORY
from windlass.store.memory import MemoryStore
from windlass.worker.services.cluster_sampler import ClusterSampler


class Scene:
    """An app with two jobs in a queue, and somebody who samples when told to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        self.app = Windlass("memory://")
        self.app.store = self.store
        self._sampler = ClusterSampler(self.store, state=RecordingState())

        @self.app.job(queue="mail")
        async def send() -> None: ...

        self.send = send

    async def sample(self, *, after: float) -> None:
        self.clock.advance(seconds=after)
        await self._sampler.tick()

    async def write(self, **records: Json) -> None:
        named = {CLUSTER: records.get("cluster"), HISTORY: records.get("history")}
        await self.store.apply(list(named), lambda _, __: Changes(answer=None, records=named))

    async def look(self, *, after: float = 0.0) -> Stats:
        self.clock.advance(seconds=after)
        return await self.app.astats()


def test_a_recent_sample_is_shown_with_its_rates_and_its_age() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.sample(after=0)
        await scene.app.aenqueue_many([scene.send.draft() for _ in range(32)])
        await scene.sample(after=16)
        stats = await scene.look(after=7)
        assert stats.sample_age == 7
        assert stats.arrival_rate == 2.0
        assert stats.arrivals == (2.0,)

    asyncio.run(main())


def test_queues_without_a_recent_sample_are_counted_live() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.sample(after=0)
        await scene.sample(after=16)
        await scene.send.aenqueue()
        stats = await scene.look(after=61)
        assert stats.sample_age is None
        assert stats.arrival_rate is None
        assert [queue.jobs for queue in stats.queues] == [{"pending": 1}]

    asyncio.run(main())


def test_a_sample_from_before_the_clock_was_set_back_is_not_believed() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.sample(after=0)
        await scene.send.aenqueue()
        stats = await scene.look(after=-3600)
        assert stats.sample_age is None
        assert [queue.name for queue in stats.queues] == ["mail"]

    asyncio.run(main())


def test_records_of_another_release_or_unreadable_ones_do_no_harm() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.send.aenqueue()
        await scene.write(cluster={"at": "noon", "queues": 7}, history={"at": {}, "total": 3})
        stats = await scene.look()
        assert stats.sample_age is None
        assert stats.arrivals == ()
        assert [queue.jobs for queue in stats.queues] == [{"pending": 1}]
        await scene.write(cluster={"at": scene.clock().timestamp(), "new": True})
        assert (await scene.look()).sample_age == 0

    asyncio.run(main())
