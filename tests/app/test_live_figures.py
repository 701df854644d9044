"""Counts are those of the moment of asking; rates say how old they are, and are none made up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from tests.support.app_on_store import STORES, Bed, Clock, Through, bed
from tests.support.worker_state import RecordingState
from windlass import Job, Meters, State, Stats, StoreUnavailable, Windlass
from windlass.app.stats import gather_stats
from windlass.core.changes import Changes
from windlass.core.jobs.settle import Transition
from windlass.core.payloads.redaction import Redaction
from windlass.core.stats.cluster_sample import CLUSTER, QueueSample, Sample
from windlass.core.stats.depths import Depths
from windlass.core.stats.kind_history import RECORD
from windlass.core.stats.live_counts import MOST, Trend
from windlass.observability.meters import Errors
from windlass.store import Store
from windlass.store.depth_counts import depths_of
from windlass.store.memory import MemoryStore
from windlass.worker.services.cluster_sampler import ClusterSampler
from windlass.worker.services.kind_stats_recorder import KindStatsRecorder

pytestmark = pytest.mark.stores(*STORES)

__all__ = ["bed"]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
STEP = 0.25
A_SECOND = 20


class Scene:
    """A store with a clock, an app on it, and the sample of a worker that is not there any more."""

    def __init__(self, bed: Bed) -> None:
        self.clock = Clock()
        self.store = bed.store(clock=self.clock)
        self.app = bed.app(store=self.store)

        @self.app.job(queue="mail")
        async def send() -> None: ...

        self._send = send

    async def sampled(self, **queue: object) -> None:
        sample = Sample(at=self.clock().timestamp(), by="w", walk=MOST)
        sample.queues["mail"] = QueueSample(**queue)  # type: ignore[arg-type]
        await keep(self.store, sample)

    async def enqueue(self, count: int) -> None:
        await self.app.aenqueue_many([self._send.draft() for _ in range(count)])

    async def look(self, *, after: float) -> Stats:
        self.clock.advance(seconds=after)
        return await self.app.astats()


async def keep(store: Store, sample: Sample) -> None:
    records = {CLUSTER: msgspec.to_builtins(sample)}
    await store.apply([CLUSTER], lambda _, __: Changes(answer=None, records=records))


def test_jobs_that_came_after_the_last_sample_are_counted(bed: Bed) -> None:
    """Prevents `no queue has jobs` while 58 of them wait."""
    scene = Scene(bed)

    async def main() -> Stats:
        await scene.store.migrate()
        await keep(scene.store, Sample(at=scene.clock().timestamp(), by="w"))
        await scene.enqueue(58)
        return await scene.look(after=8)

    found = asyncio.run(main())
    assert [(queue.name, queue.jobs) for queue in found.queues] == [("mail", {"pending": 58})]
    assert found.count_age == 0.0
    assert found.sample_age == pytest.approx(8, abs=0.01)
    assert found.sampled_at is not None
    assert found.sampled_at < found.at
    assert found.queues[0].arrival_rate is None, "nobody has sampled it twice"


def test_nothing_runs_where_no_job_runs_whatever_the_last_sample_says(bed: Bed) -> None:
    """Prevents two running jobs and no worker in one document, after a burst has ended."""
    scene = Scene(bed)

    async def main() -> Stats:
        await scene.store.migrate()
        await scene.sampled(jobs={"pending": 40, "running": 2}, service_rate=3.0, arrival_rate=1.0)
        await scene.enqueue(1)
        return await scene.look(after=5)

    found = asyncio.run(main())
    assert found.queues[0].jobs == {"pending": 1}
    assert found.queues[0].service_rate == 3.0, "rates are those of the sample, which has an age"
    assert found.sample_age == pytest.approx(5, abs=0.01)
    assert found.workers == ()


def test_a_count_that_ends_at_its_bound_takes_what_a_worker_counted_further() -> None:
    scene = Long(MemoryStore(clock=(clock := Clock())), MOST)

    async def main(jobs: int, *, capped: bool) -> Stats:
        queue = QueueSample(jobs={"pending": jobs}, capped=["pending"] if capped else [])
        await keep(scene.inner, Sample(at=clock().timestamp(), queues={"mail": queue}))
        return await gather_stats(scene, Redaction())

    further = asyncio.run(main(200_000, capped=False)).queues[0]
    assert (further.jobs["pending"], further.capped) == (200_000, frozenset())
    furthest = asyncio.run(main(500_000, capped=True)).queues[0]
    assert (furthest.jobs["pending"], furthest.capped) == (500_000, frozenset({"pending"}))
    grown = asyncio.run(main(3, capped=False)).queues[0]
    assert (grown.jobs["pending"], grown.capped) == (MOST, frozenset({"pending"}))
    assert scene.asked == [MOST] * 3


class Long(Through):
    """A store in which more jobs wait than are counted."""

    def __init__(self, inner: Store, most: int) -> None:
        super().__init__(inner)
        self.asked: list[int] = []
        self._most = most

    async def depths(self, most: int) -> Depths:
        self.asked.append(most)
        return depths_of([("mail", State.PENDING, self._most + 1)], most)


class Overdue(Through):
    """A store that cannot count in time."""

    async def depths(self, _: int) -> Depths:
        raise StoreUnavailable("canceling statement due to statement timeout")


def test_if_counting_takes_too_long_the_sample_is_shown_with_its_age() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)

    async def main() -> Stats:
        queue = QueueSample(jobs={"pending": 7})
        await keep(store, Sample(at=clock().timestamp(), queues={"mail": queue}))
        clock.advance(seconds=9)
        return await gather_stats(Overdue(store), Redaction())

    found = asyncio.run(main())
    assert found.queues[0].jobs == {"pending": 7}
    assert (found.count_age, found.sample_age) == (9.0, 9.0)
    with pytest.raises(StoreUnavailable):
        asyncio.run(gather_stats(Overdue(MemoryStore()), Redaction()))


# -- trends ------------------------------------------------------------------------------------


def counts(at: float, **pending: int) -> Sample:
    queues = {name: QueueSample(jobs={"pending": count}) for name, count in pending.items()}
    return Sample(at=at, queues=queues)


def test_a_trend_is_what_changed_within_the_last_seconds() -> None:
    trend = Trend()
    assert trend.growth("mail") is None
    trend.note(counts(100, mail=50), None)
    trend.note(counts(101, mail=10), None)
    assert trend.growth("mail") is None, "a second is too short"
    trend.note(counts(110, mail=30, files=5), None)
    assert trend.growth("mail") == -2.0
    assert trend.growth("files") == 0.5, "a queue without jobs is not told of"
    trend.note(counts(115, mail=30), None)
    assert trend.growth("mail") == pytest.approx(20 / 14), "since ten seconds ago or a little more"
    trend.note(counts(146, mail=30), None)
    assert trend.growth("mail") is None, "what was long ago is forgotten"
    trend.note(counts(20, mail=30), None)
    trend.note(counts(30, mail=20), None)
    assert trend.growth("mail") == -1.0, "the clock was set back"


def test_a_sample_and_a_count_are_a_trend_and_a_part_of_a_queue_is_none() -> None:
    trend = Trend()
    trend.note(counts(110, mail=30), counts(100, mail=50))
    assert trend.growth("mail") == -2.0
    part = QueueSample(jobs={"pending": 10}, capped=["pending"])
    trend = Trend()
    trend.note(counts(110, mail=30), Sample(at=100, queues={"mail": part}))
    assert trend.growth("mail") is None


def test_a_burst_that_is_worked_off_shrinks_whatever_was_counted_before_it() -> None:
    """Prevents `drains never` for ten seconds, while the queue shrinks at each look."""
    trend = Trend()
    for at, pending in enumerate((8, 8, 8, 108, 98, 88)):
        trend.note(counts(100 + at, mail=pending), None)
    assert trend.growth("mail") == 16.0, "two looks may be chance"
    trend.note(counts(106, mail=78), None)
    assert trend.growth("mail") == -10.0
    trend.note(counts(107, mail=80), None)
    assert trend.growth("mail") == pytest.approx(72 / 7), "and grows again"


# -- rates -------------------------------------------------------------------------------------


def leave(meters: Meters) -> None:
    job = Job(
        id=uuid4(), kind="send", queue="mail", priority=0, key="", state=State.RUNNING,
        payload=b"{}", created_at=NOW, due_at=NOW, token=7,
    )  # fmt: skip
    meters.settled(job, Transition(id=job.id, token=7, state=State.COMPLETED))


async def steady(workers: int) -> list[tuple[float | None, float | None]]:
    """Let 20 jobs a second come and leave, and return each rate that somebody sees meanwhile."""
    clock = Clock()
    app = Windlass("memory://")
    app.store = MemoryStore(clock=clock)
    meters = [Meters() for _ in range(workers)]
    due: list[tuple[float, KindStatsRecorder | ClusterSampler]] = []
    for number, each in enumerate(meters):
        recorder = KindStatsRecorder(app.store, each)
        sampler = ClusterSampler(app.store, state=RecordingState(f"w{number}"), recorder=recorder)
        due += [(number, recorder), (number, sampler)]
    seen = []
    for step in range(int(150 / STEP)):
        for number in range(int(A_SECOND * STEP)):
            leave(meters[(step + number) % workers])
        now = step * STEP
        due = [(now + await service.tick() if at <= now else at, service) for at, service in due]
        stats = await app.astats()
        seen.append((stats.arrival_rate, stats.service_rate))
        clock.advance(seconds=STEP)
    return list(dict.fromkeys(seen))


@pytest.mark.parametrize(("workers", "off"), [(1, 0.03), (3, 0.4)])
def test_a_steady_rate_is_shown_from_the_first_moments_on(workers: int, off: float) -> None:
    """Prevents 0, 39.6 and 29 for 20 a second: samples between which nobody recorded, or twice.

    Workers other than the one that samples have recorded a few seconds before.
    """
    seen = asyncio.run(steady(workers))
    known = [rates for rates in seen if None not in rates]
    assert len(seen) - len(known) == 1, "not known at first, and then always"
    for rates in known:
        assert rates == pytest.approx((A_SECOND, A_SECOND), rel=off)


def test_two_records_at_once_add_what_is_new_once() -> None:
    """A sample is about to be made while what ran is recorded anyway."""
    store, meters = MemoryStore(), Meters()

    async def main() -> int:
        recorder = KindStatsRecorder(Yielding(store), meters)  # type: ignore[arg-type]
        leave(meters)
        await asyncio.gather(recorder.record(), recorder.record_ahead())
        return int((await store.records(RECORD))[RECORD + "send"]["left"]["mail"])

    assert asyncio.run(main()) == 1


def test_an_error_is_recorded_with_the_time_at_which_it_came() -> None:
    clock = Clock()
    store, meters = MemoryStore(clock=clock), Meters()
    leave(meters)
    (tallies,) = meters.tallies
    errors = tallies.errors["ab"] = Errors()
    errors.count, errors.line = 1, "Error: one"
    errors.first -= 20
    errors.last -= 12

    async def main() -> dict[str, float]:
        await KindStatsRecorder(store, meters).record()
        seen: dict[str, float] = (await store.records(RECORD))[RECORD + "send"]["errors"]["ab"]
        return seen

    seen = asyncio.run(main())
    assert seen["first"] <= clock().timestamp() - 20
    assert seen["first"] + 8 == pytest.approx(seen["last"])


class Yielding(Through):
    """A store that lets others go on before it answers."""

    async def apply(self, *told: object) -> object:
        await asyncio.sleep(0)
        return await self.inner.apply(*told)  # type: ignore[arg-type]
