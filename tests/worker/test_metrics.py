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
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.app_on_store import Bed, Through, in_state, on_embedded_stores, serving, until
from tests.worker.counting_store import Counting, awaited
from windlass import Context, Job, MeasureRuns, Meters, State, Windlass
from windlass.core.stats.cluster_sample import read_sample
from windlass.core.stats.kind_history import RECORD, read_stats
from windlass.store.postgres import PostgresStore
from windlass.worker import Worker

PORT = 22_000


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
