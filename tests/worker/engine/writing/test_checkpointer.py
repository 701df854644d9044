"""What workers record for those who look: each error once, and who comes into a crowded queue."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import STORES, Bed, Clock, Through
from tests.support.worker_state import RecordingState
from windlass import Job, Meters, State, StoreUnavailable
from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.settle import Transition
from windlass.core.stats import cluster_sample
from windlass.core.stats.cluster_sample import CLUSTER, Sample, read_sample
from windlass.core.stats.depths import Depth, Depths
from windlass.core.stats.kind_history import RECORD, read_stats
from windlass.store.memory import MemoryStore
from windlass.worker.services import cluster_sampler as sampler
from windlass.worker.services.cluster_sampler import ClusterSampler
from windlass.worker.services.kind_stats_recorder import KindStatsRecorder

pytestmark = pytest.mark.stores(*STORES)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Refusing(Through):
    """A store that cannot be reached the first time."""

    refused = False

    async def apply(self, *told: Any) -> Any:
        if not self.refused:
            self.refused = True
            raise StoreUnavailable("gone for a moment")
        return await self.inner.apply(*told)


def die(meters: Meters, queue: str = "mail") -> None:
    job = Job(
        id=uuid4(), kind="send", queue=queue, priority=0, key="", state=State.RUNNING,
        payload=b"{}", created_at=NOW, due_at=NOW, token=7,
    )  # fmt: skip
    error = ErrorInfo(type="ValueError", message="no", fingerprint="ab")
    meters.settled(job, Transition(id=job.id, token=7, state=State.DEAD, failures=1, error=error))


def test_an_error_that_cannot_be_recorded_now_is_recorded_later_and_once() -> None:
    store, meters = MemoryStore(), Meters()
    recorder = KindStatsRecorder(Refusing(store), meters)

    async def main() -> None:
        die(meters)
        with pytest.raises(StoreUnavailable):
            await recorder.stop()
        die(meters)
        die(meters, queue="files")
        for _ in range(2):
            await recorder.stop()
        stats = read_stats((await store.records(RECORD))[RECORD + "send"])
        assert [window.errors for window in stats.windows] == [{"ab": 3}]

    asyncio.run(main())
    assert [each.errors for each in meters.tallies] == [{}, {}]


def test_an_error_that_comes_while_others_are_recorded_is_recorded_next_time() -> None:
    store, meters = MemoryStore(), Meters()

    class Slow(Through):
        async def apply(self, *told: Any) -> Any:
            if len(meters.tallies) == 1 and meters.tallies[0].errors["ab"].count == 1:
                die(meters)
            return await self.inner.apply(*told)

    recorder = KindStatsRecorder(Slow(store), meters)

    async def main() -> None:
        die(meters)
        await recorder.stop()
        assert meters.tallies[0].errors["ab"].count == 1
        await recorder.stop()
        stats = read_stats((await store.records(RECORD))[RECORD + "send"])
        assert sum(window.errors["ab"] for window in stats.windows) >= 2

    asyncio.run(main())


def test_arrivals_in_a_queue_too_long_to_count_are_known(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert that compares depths is blind there: 4 of them stay 4, whatever comes."""
    monkeypatch.setattr(sampler, "EVERY", timedelta(0))
    monkeypatch.setattr(sampler, "_LATE_AFTER", timedelta(0))
    monkeypatch.setattr(cluster_sample, "walk_after", lambda _: 4)
    assert bed.url

    async def main() -> None:
        app = bed.app()

        @app.job(queue="mail")
        async def send() -> None: ...

        taking = ClusterSampler(app.store, state=RecordingState())

        async def take() -> Sample:
            await asyncio.sleep(0.05)
            await taking.tick()
            made = read_sample((await app.store.records(CLUSTER))[CLUSTER])
            assert made is not None
            return made

        await app.aenqueue_many([send.draft() for _ in range(9)])
        first = await take()
        await app.aenqueue_many([send.draft() for _ in range(3)])
        second = await take()
        queue = second.queues["mail"]
        assert (queue.jobs, queue.capped) == ({"pending": 4}, ["pending"])
        assert queue.estimated
        assert queue.arrival_rate == pytest.approx(3 / (second.at - first.at))

    asyncio.run(main())


def test_where_too_many_come_to_count_them_a_part_of_the_time_stands_for_all() -> None:
    clock = Clock()
    asked: list[tuple[float, float]] = []

    class Flooded(Through):
        async def depths(self, most: int) -> Depths:
            full = Depth(queue="mail", state=State.PENDING, count=most, capped=True)
            return Depths(counts=(full,))

        async def arrivals(self, since: datetime, until: datetime, _: int) -> Any:
            now = clock()
            asked.append(((now - since).total_seconds(), (now - until).total_seconds()))
            return {"mail": 50} if until - since < timedelta(seconds=5) else None

    state = RecordingState()
    taking = ClusterSampler(Flooded(MemoryStore(clock=clock)), state=state)

    async def main() -> None:
        await taking.tick()
        clock.advance(seconds=16)
        await taking.tick()

    asyncio.run(main())
    assert asked == [(21.0, 5.0), (7.0, 5.0)], "what is not committed yet is left for the next"
    assert state.samples[-1][0]["queues"]["mail"]["arrival_rate"] == 8 * 50 / 16


def test_nobody_looks_for_newcomers_where_all_jobs_are_counted() -> None:
    asked: list[str] = []
    clock = Clock()

    class Asked(Through):
        async def arrivals(self, *_: Any) -> None:
            asked.append("arrivals")

    taking = ClusterSampler(Asked(MemoryStore(clock=clock)), state=RecordingState())

    async def main() -> None:
        for _ in range(3):
            await taking.tick()
            clock.advance(seconds=20)

    asyncio.run(main())
    assert asked == []
