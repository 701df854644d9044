"""A worker's metrics are there for who asks: also while its loop is blocked, and without its store.

What is true of the whole cluster one worker finds out, and all others read.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import Any

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    Through,
    in_state,
    on_embedded_stores,
    serving,
    until,
)
from tests.support.worker_state import RecordingState
from windlass import Context, Job, MeasureRuns, Meters, State, Windlass
from windlass.core.changes import Changes
from windlass.core.stats.cluster_sample import CLUSTER, TURN, read_sample
from windlass.core.stats.depths import Depths
from windlass.core.stats.kind_history import RECORD, read_stats
from windlass.core.stats.sample_history import HISTORY
from windlass.store.memory import MemoryStore
from windlass.store.postgres import PostgresStore
from windlass.worker import Worker
from windlass.worker.services import cluster_sampler as sampler
from windlass.worker.services.cluster_sampler import ClusterSampler

PORT = 22_000


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(bed: Bed, **given: Any) -> None:
        assert bed.url, "a database is made here, since that takes an event loop of its own"
        asyncio.run(test(bed=bed, **given))

    return run


def address(worker: Worker) -> str:
    assert worker._parts.status.address
    return worker._parts.status.address


def fetch(where: str, path: str = "/metrics") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def afetch(where: str, path: str = "/metrics") -> tuple[int, str]:
    return await asyncio.to_thread(fetch, where, path)


def value(text: str, series: str) -> float | None:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return None if found is None else float(found[1])


@on_embedded_stores
@awaited
async def test_a_worker_serves_what_it_has_counted(bed: Bed) -> None:
    before = time.time()
    app = bed.app(metrics_port=PORT)

    @app.job(queue="mail", max_retries=0)
    async def send(good: bool) -> None:
        if not good:
            raise ValueError("bad")

    async with serving(app) as worker:
        await in_state(await send.aenqueue(True), State.COMPLETED)
        await in_state(await send.aenqueue(False), State.DEAD)
        labels = '{queue="mail",kind="send"}'

        async def is_counted() -> bool:
            _, text = await afetch(address(worker))
            return (
                value(text, f"windlass_jobs_completed_total{labels}") == 1
                and value(text, f"windlass_jobs_dead_total{labels}") == 1
                and value(text, f"windlass_jobs_failed_total{labels}") == 1
                and value(text, f"windlass_job_duration_seconds_count{labels}") == 2
                and value(text, 'windlass_slots{process="1"}') == 100
                and before < (value(text, "windlass_start_time_seconds") or 0) < time.time()
            )

        await until(is_counted)
        assert await afetch(address(worker), "/health") == (200, '{"live": true, "ready": true}\n')
        where = address(worker)
    with pytest.raises(urllib.error.URLError):
        fetch(where)


@on_embedded_stores
@awaited
async def test_an_embedded_worker_serves_no_metrics_unless_it_is_given_a_port(bed: Bed) -> None:
    app = bed.app()
    async with serving(app) as worker:
        assert worker._parts.status.address == ""


@on_embedded_stores
@awaited
async def test_metrics_and_probes_are_served_while_the_loop_is_blocked(bed: Bed) -> None:
    """Torture 7: the lag is a metric, and whoever asks for it does not wait for the loop."""
    app = bed.app(metrics_port=PORT)
    blocked, over = threading.Event(), threading.Event()

    @app.job
    async def block() -> None:
        blocked.set()
        over.wait(60)

    async with serving(app) as worker:
        where, seen = address(worker), []

        def look() -> None:
            blocked.wait(60)
            time.sleep(1.0)
            seen.extend([fetch(where), fetch(where, "/health/live"), fetch(where, "/health")])
            over.set()

        looking = threading.Thread(target=look)
        looking.start()
        await in_state(await block.aenqueue(), State.COMPLETED)
        looking.join()
        _, after = await afetch(where)
    (status, text), live, health = seen
    assert status == 200
    assert (value(text, 'windlass_loop_lag_seconds{process="1"}') or 0) > 0.5
    assert (value(text, 'windlass_loop_late_seconds_total{process="1"}') or 0) < 0.5
    assert (value(after, 'windlass_loop_late_seconds_total{process="1"}') or 0) > 0.5, "it is kept"
    assert live == (200, "ok\n")
    assert health == (200, '{"live": true, "ready": true}\n')


class Counting(Through):
    """Counts the calls of a store."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return super().__getattr__(name)


@on_embedded_stores
@awaited
async def test_a_scrape_touches_no_database(bed: Bed) -> None:
    store = Counting(bed.store())
    app = bed.app(store=store, metrics_port=PORT)
    async with serving(app) as worker:
        await until(lambda: worker._state.sample is not None)
        looks = {"listening", "connections"}
        before = Counter(store.calls)
        # On the loop itself, which therefore does nothing else meanwhile; the heart may beat.
        _, text = fetch(address(worker))
        assert "windlass_workers" in text
        assert set(store.calls - before) <= looks | {"heartbeat"}


class Deaf(Through):
    """Has never been told of anything, though it wanted to be, or does not want to be."""

    listening = False

    def __init__(self, inner: Any, *, wakes: bool) -> None:
        super().__init__(inner)
        self.capabilities = replace(inner.capabilities, wakes=wakes)


@on_embedded_stores
@awaited
@pytest.mark.parametrize(("wakes", "shown"), [(True, 0.0), (False, None)])
async def test_a_listener_without_notifications_differs_from_one_that_is_off(
    bed: Bed, wakes: bool, shown: float | None
) -> None:
    """Behind a pooler, or with a wrong listen_url, no wake-up ever arrives: that is an alert."""
    app = bed.app(store=Deaf(bed.store(), wakes=wakes), metrics_port=PORT)
    async with serving(app) as worker:
        _, text = await afetch(address(worker))
        assert value(text, 'windlass_listening{process="1"}') == shown


@pytest.mark.parametrize(("url", "wakes"), [("off", False), (None, True)])
def test_postgresql_sends_no_wake_ups_where_listening_is_off(url: str | None, wakes: bool) -> None:
    store = PostgresStore("postgresql://nobody@localhost/none", listen_url=url)
    assert store.capabilities.wakes is wakes


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


@awaited
async def test_percentiles_are_in_the_store_without_prometheus(bed: Bed) -> None:
    app = bed.app()

    @app.job(queue="mail")
    async def send() -> None: ...

    async with serving(app):
        handles = await app.aenqueue_many([send.draft() for _ in range(20)])
        for handle in handles:
            await in_state(handle, State.COMPLETED)
    found = await app.store.records(RECORD)
    stats = read_stats(found[RECORD + "send"])
    lately = stats.lately((await app.store.sweep()).now)
    assert (lately.completed, lately.runs) == (20, 20)
    assert stats.left == {"mail": 20}


@awaited
async def test_errors_of_runs_are_recorded_in_the_store(bed: Bed) -> None:
    app = bed.app()

    @app.job(queue="mail", max_retries=0)
    async def send(number: int) -> None:
        raise ValueError(f"letter {number}: password='geheim'")

    async with serving(app):
        for number in range(3):
            await in_state(await send.aenqueue(number), State.DEAD)

        async def tells_what_it_uses() -> bool:
            (alive,) = (await app.astats()).workers
            has_pool = bed.kind in ("postgres", "redis")
            return (alive.memory or 0) > 1_000_000 and (alive.pool is not None) == has_pool

        await until(tells_what_it_uses)
    (found,) = (await app.astats()).errors
    assert (found.kind, found.count, found.dead) == ("send", 3, 3)
    assert found.error == "ValueError: letter 2: password='***'"
    assert found.history[-1] + found.history[-2] == 3
    (group,) = await app.control.aerror_groups()
    assert found.group == group.fingerprint, "what windlass dead redrive --group takes"
    assert "geheim" not in str(await app.store.records(RECORD))


class Told(Meters):
    """Somebody's own meters."""

    ran_jobs: list[tuple[str, float]] = []  # noqa: RUF012 - told by all, for the test.

    def ran(self, job: Job, seconds: float) -> None:
        super().ran(job, seconds)
        self.ran_jobs.append((job.kind, seconds))


@on_embedded_stores
@awaited
async def test_users_can_replace_the_meters(bed: Bed) -> None:
    Told.ran_jobs.clear()
    app = Windlass(bed.url, meters=Told)

    @app.job
    async def send() -> None: ...

    async with serving(app):
        await in_state(await send.aenqueue(), State.COMPLETED)
    assert [kind for kind, _ in Told.ran_jobs] == ["send"]
    await app.aclose()


@on_embedded_stores
@awaited
async def test_runs_can_be_measured_by_a_middleware(bed: Bed) -> None:
    told: list[tuple[str, str, bool]] = []

    def measured(ctx: Context, end: str, seconds: float) -> None:
        told.append((ctx.job.kind, end, 0 <= seconds < 5))
        raise LookupError("nobody minds this")

    app = bed.app(middleware=[MeasureRuns(measured)])

    @app.job(max_retries=0)
    async def work(good: bool) -> None:
        if not good:
            raise ValueError

    async with serving(app):
        await in_state(await work.aenqueue(True), State.COMPLETED)
        await in_state(await work.aenqueue(False), State.DEAD)
    assert told == [("work", "returned", True), ("work", "raised", True)]


CANARY = "canary-5up3r-s3cr3t"


@awaited
async def test_no_secret_is_in_the_metrics(bed: Bed) -> None:
    """Torture 50: planted in payload, result, exception, header and URL."""
    app = bed.app(metrics_port=PORT, metrics_token=CANARY)

    @app.job(max_retries=0)
    async def pay(card: str) -> str:
        if card.endswith("!"):
            raise ValueError(f"postgresql://user:{card}@host refused {card}")
        return card

    async with serving(app) as worker:
        await in_state(await pay.aenqueue(CANARY), State.COMPLETED)
        await in_state(await pay.aenqueue(f"{CANARY}!"), State.DEAD)
        await until(lambda: worker._state.sample is not None)
        text = worker._parts.status.page()
        assert (await afetch(address(worker)))[0] == 401
        stored = repr(await app.store.records(""))
    assert "pay" in text
    assert CANARY not in text
    assert CANARY not in stored


@awaited
async def test_a_sample_has_the_unserved_queues(bed: Bed) -> None:
    app = bed.app()

    @app.job(queue="lonely")
    async def wait() -> None: ...

    await wait.aenqueue()
    async with serving(app, queues="mail") as worker:
        await until(lambda: worker._state.sample is not None)
        sample = read_sample(worker._state.sample)
    assert sample is not None
    lonely = sample.queues["lonely"]
    assert (lonely.jobs, lonely.workers, lonely.unserved) == ({"pending": 1}, 0, 1)
