"""One worker samples for all, and what it could not count is not made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Clock, serving, until
from tests.support.worker_state import RecordingState
from tests.worker.counting_store import Counting, awaited
from windlass import Windlass
from windlass.core.changes import Changes
from windlass.core.claims.plan import Policies
from windlass.core.stats.cluster_sample import CLUSTER, TURN, read_sample
from windlass.core.stats.depths import Depths
from windlass.core.stats.sample_history import HISTORY
from windlass.store.memory import MemoryStore
from windlass.worker.services import cluster_sampler as sampler
from windlass.worker.services.cluster_sampler import ClusterSampler


@awaited
async def test_one_worker_samples_for_all(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_POLL_SECONDS", 0.05)
    stores = [Counting(bed.store())]
    stores += [Counting(stores[0].inner if bed.kind == "memory" else bed.store()) for _ in range(2)]
    apps = [bed.app(store=store) for store in stores]
    async with serving(apps[0]) as one, serving(apps[1]) as two, serving(apps[2]) as three:
        workers = (one, two, three)
        await until(lambda: all(worker._state.sample is not None for worker in workers))
        await asyncio.sleep(0.5)
        assert sum(store.calls["depths"] for store in stores) == 1, "the first sample is for all"
        found = await stores[0].records("sample:")
        assert set(found) == {TURN, CLUSTER, HISTORY}
        samples = [worker._state.sample for worker in workers]
        assert all(each == samples[0] for each in samples)


@awaited
async def test_only_one_worker_samples_in_fifteen_seconds(bed: Bed) -> None:
    store = Counting(bed.store())
    state = RecordingState()
    samplers = [ClusterSampler(store, state=state) for _ in range(4)]
    await asyncio.gather(*(each.tick() for each in samplers))
    for each in samplers:
        await each.tick()
    assert store.calls["depths"] == 1
    assert len(state.samples) >= 4, "the others read it"
    assert len({sample["at"] for sample, _ in state.samples}) == 1


@awaited
async def test_a_sample_has_the_queues_that_its_worker_does_not_serve(bed: Bed) -> None:
    """Prevents: figures of other queues are missing, or as old as the last sample."""
    app, state = bed.app(), RecordingState()
    state.policies = Policies(kinds={}, queues=frozenset({"mail"}))

    @app.job
    async def work() -> None: ...

    sampler = ClusterSampler(app.store, state=state)
    for number in range(3):
        await work.using(queue=f"other-{number}").aenqueue()
        await sampler._sample(None, "w", 1_000)
        sample = read_sample(state.samples[-1][0])
        assert sample is not None
        waiting = [name for name, queue in sample.queues.items() if queue.oldest is not None]
        assert sorted(waiting) == [f"other-{n}" for n in range(number + 1)]


def test_a_clock_that_is_set_back_does_not_stop_the_sampling() -> None:
    clock, state = Clock(), RecordingState()
    sampler = ClusterSampler(MemoryStore(clock=clock), state=state)

    async def main() -> None:
        await sampler.tick()
        clock.advance(hours=-1)
        await sampler.tick()

    asyncio.run(main())
    (made, _), (stale, age), (anew, _) = [(each["at"], age) for each, age in state.samples]
    assert (stale, age) == (made, -3600.0), "that it comes from the future is not hidden"
    assert anew == made - 3600


class Slow(MemoryStore):
    """Takes long to count, while something else happens; and fails where it is told to."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.most = 1_000_000
        self.walks: list[int] = []

    async def depths(self, most: int) -> Depths:
        self.walks.append(most)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        if most > self.most:
            raise TimeoutError("canceling statement due to statement timeout")
        return await super().depths(most)

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        raise TimeoutError("canceling statement due to statement timeout")


def test_a_slow_sampler_does_not_overwrite_what_another_has_sampled_later() -> None:
    clock = Clock()
    store = Slow(clock)
    first = ClusterSampler(store, state=RecordingState("slow"))
    second = ClusterSampler(store, state=RecordingState("quick"))

    async def another() -> None:
        clock.advance(seconds=20)
        await second.tick()

    async def main() -> None:
        store.meanwhile = another
        await first.tick()
        record = (await store.records(CLUSTER))[CLUSTER]
        assert record["by"] == "quick"
        assert (await store.records(HISTORY))[HISTORY]["at"] == [record["at"]]

    asyncio.run(main())


def test_a_sample_that_takes_too_long_is_tried_again_with_less() -> None:
    """Else nobody samples any more: the next one tries the same, and fails as well."""
    clock = Clock()
    store = Slow(clock)
    sampler = ClusterSampler(store, state=RecordingState())

    async def main() -> None:
        await sampler.tick()
        store.most = 20_000
        for _ in range(2):
            clock.advance(seconds=16)
            with pytest.raises(TimeoutError):
                await sampler.tick()
        clock.advance(seconds=16)
        await sampler.tick()
        clock.advance(seconds=16)
        await sampler.tick()

    asyncio.run(main())
    assert store.walks == [60_000, 60_000, 30_000, 15_000, 15_000]


def test_counts_are_kept_even_if_arrivals_are_unknown() -> None:
    clock = Clock()
    store = Slow(clock)
    sampler = ClusterSampler(store, state=RecordingState())
    app = Windlass("memory://")
    app.store = store

    @app.job(queue="mail")
    async def send() -> None: ...

    async def main() -> None:
        await app.aenqueue_many([send.draft() for _ in range(9)])
        await sampler.tick()
        turn = {"at": 0.0, "by": "w"}
        few = {"at": clock().timestamp(), "walk": 8, "queues": {"mail": {"capped": ["pending"]}}}
        await store.apply(
            [TURN, CLUSTER],
            lambda *_: Changes(answer=None, records={TURN: turn, CLUSTER: few | {"seconds": 0.2}}),
        )
        clock.advance(seconds=16)
        await sampler.tick()
        made = read_sample((await store.records(CLUSTER))[CLUSTER])
        assert made is not None
        assert made.queues["mail"].capped == ["pending"]
        assert made.queues["mail"].service_rate == 0.0
        assert made.queues["mail"].arrival_rate is None

    asyncio.run(main())
