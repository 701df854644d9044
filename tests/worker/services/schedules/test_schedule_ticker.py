"""Schedules in the store: who ticks, when, how often; after an outage, beside each other, by hand.

Most tests let tickers tick one round at a time, by a clock of their own; a few have whole workers.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Through, in_state, on_embedded_stores, serving, until
from tests.worker.services.schedules.ticking import (
    MINUTE,
    NOON,
    clocked,
    have,
    jobs,
    known,
    reporting,
    ticker,
    ticks,
)
from windlass import Context, State, StoreUnavailable, Windlass
from windlass.core.jobs.job import SCHEDULE, TICK
from windlass.core.schedules.schedule import read_record

pytestmark = pytest.mark.stores("postgres")


# -- one job per tick ------------------------------------------------------------------------------


def test_five_workers_make_one_job_of_each_tick(bed: Bed) -> None:
    """Case 35. Prevents every worker from enqueueing what all of them know."""
    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        for number in range(10):
            await app.schedules.aput(f"s{number}", "report", every="1m", overlap="allow")
        crew = [ticker(app) for _ in range(5)]
        for _ in range(4):
            clock.advance(minutes=1)
            await asyncio.gather(*(each.tick() for each in crew))
            await asyncio.gather(*(each.tick() for each in crew))
        made = Counter((job.headers[SCHEDULE], job.headers[TICK]) for job in await jobs(app))
        assert len(made) == 40
        assert set(made.values()) == {1}

    asyncio.run(main())


def test_a_tick_becomes_a_job_that_knows_what_it_is_for(bed: Bed) -> None:
    app, clock = clocked(bed)
    report = reporting(app)
    seen: list[datetime | None] = []

    @app.cron("30 12 * * *", tz="Africa/Abidjan", queue="nightly", max_retries=0)
    async def sweep(ctx: Context) -> None:
        seen.append(ctx.scheduled_for)

    async def main() -> None:
        await app.schedules.aput("acme", report.draft("acme"), every="10m")
        async with serving(app):
            await until(lambda: known(app, "sweep"))
            clock.advance(minutes=31)
            await until(lambda: have(app, 2, State.COMPLETED))
            assert await report.aenqueue("x") is not None
            await until(lambda: have(app, 3, State.COMPLETED))
        done = {job.headers.get(SCHEDULE): job for job in await jobs(app)}
        assert done["acme"].result == b'"acme 2030-01-01 12:30:00+00:00"'
        assert (done["acme"].queue, done["sweep"].queue) == ("reports", "nightly")
        assert done[None].result == b'"x None"'
        assert seen == [NOON + 30 * MINUTE]

    asyncio.run(main())


@pytest.mark.parametrize("lost", ["apply", "ringing"])
def test_a_store_that_answers_too_late_loses_no_tick_and_makes_none_twice(
    bed: Bed, lost: str
) -> None:
    """Prevents a second job where the first one's enqueue was committed and never heard of."""

    class Forgetful(Through):
        async def apply(self, names: Any, decide: Any) -> Any:
            answer = await self.inner.apply(names, decide)
            if lost == "apply":
                raise StoreUnavailable("nobody knows")
            return answer

        async def ringing(self, limit: int) -> Any:
            if lost == "ringing":
                raise StoreUnavailable("not now")
            return await self.inner.ringing(limit)

    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        await app.schedules.aput("s", "report", every="1m")
        clock.advance(minutes=1)
        with pytest.raises(StoreUnavailable):
            await ticker(app, store=Forgetful(app.store)).tick()
        await ticker(app).tick()
        assert await ticks(app) == [1]

    asyncio.run(main())


def test_code_writes_its_schedules_and_a_changed_one_begins_anew(bed: Bed) -> None:
    app, clock = clocked(bed)
    later, without = bed.app(store=app.store), bed.app(store=app.store)

    @app.every("10m", name="sweep", overlap="allow")
    async def sweep() -> None: ...

    @later.every("30m", name="sweep", overlap="allow")
    async def sweep_less() -> None: ...

    @without.job(name="sweep")
    async def sweep_no_more() -> None: ...

    async def main() -> None:
        await ticker(app).tick()
        assert (await app.schedules.aget("sweep")).next == NOON + 10 * MINUTE
        clock.advance(minutes=4)
        await ticker(app).tick()
        assert (await app.schedules.aget("sweep")).next == NOON + 10 * MINUTE, "it is as it was"
        await ticker(later).tick()
        assert (await app.schedules.aget("sweep")).next == NOON + 34 * MINUTE
        clock.advance(minutes=30)
        await ticker(without).tick()
        assert await jobs(app) == [], "it knows the kind, but not the schedule"
        await ticker(later).tick()
        assert await ticks(app) == [34]
        await app.schedules.apause("sweep")
        await ticker(later).tick()
        assert (await app.schedules.aget("sweep")).paused, "a restart does not end a pause"

    asyncio.run(main())


def test_only_the_clock_of_the_store_counts(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 32. A worker whose clock is an hour ahead makes no job early, and no other one late."""
    app, clock = clocked(bed)
    reporting(app)

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2030, 1, 1, 13, tzinfo=tz)

    read_record({})  # msgspec learns of which types a record is, while they are what they are.
    monkeypatch.setattr("time.time", lambda: NOON.timestamp() + 3_600)
    for module in (
        "worker.services.schedules.schedule_ticker",
        "core.schedules.schedule",
        "core.schedules.cron",
        "app.schedules",
    ):
        monkeypatch.setattr(f"windlass.{module}.datetime", Ahead)

    async def main() -> None:
        await app.schedules.aput("s", "report", cron="30 * * * *")
        delay = await ticker(app).tick()
        assert await jobs(app) == []
        assert 1.0 <= delay <= 1.1
        clock.advance(minutes=29, seconds=59.5)
        delay = await ticker(app).tick()
        assert await jobs(app) == []
        assert 0.5 <= delay <= 0.6, "it sleeps until the tick"
        clock.advance(seconds=0.5)
        await ticker(app).tick()
        assert await ticks(app) == [30]

    asyncio.run(main())


# -- cost ------------------------------------------------------------------------------------------


class Counting(Through):
    """A store that counts what it is asked."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()
        self.largest = 0

    async def apply(self, names: Any, decide: Any) -> Any:
        self.asked["apply"] += 1
        self.largest = max(self.largest, len(names))
        return await self.inner.apply(names, decide)

    async def ringing(self, limit: int) -> Any:
        self.asked["ringing"] += 1
        return await self.inner.ringing(limit)

    async def get_many(self, ids: Any) -> Any:
        self.asked["get_many"] += 1
        self.largest = max(self.largest, len(ids))
        return await self.inner.get_many(ids)

    async def records(self, prefix: str, page: Any = None) -> Any:
        self.asked["records"] += 1
        return await self.inner.records(prefix, page)


@pytest.mark.parametrize("by_another", [False, True])
def test_schedules_go_on_after_the_clock_of_the_store_was_a_year_ahead(
    bed: Bed, *, by_another: bool
) -> None:
    """Prevents a schedule from being silent for a year, since it has ticked a year too early."""
    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        await app.schedules.aput("s", "report", every="1m", overlap="allow")
        ticking = ticker(app)
        clock.advance(days=365)
        await ticking.tick()
        clock.advance(days=-365)
        ticking = ticker(app) if by_another else ticking
        for _ in range(5):
            await ticking.tick()
            clock.advance(minutes=1)
        assert (await app.schedules.aget("s")).record.ticks >= 4

    asyncio.run(main())


def test_without_schedules_a_look_is_one_question_a_second(bed: Bed) -> None:
    app, _ = clocked(bed)
    store = Counting(app.store)

    async def main() -> None:
        delay = await ticker(app, store=store).tick()
        assert store.asked == {"ringing": 1}
        assert delay >= 1.0

    asyncio.run(main())


def test_many_schedules_are_ticked_in_bounded_batches(bed: Bed) -> None:
    """Case 47, in small: a hundred at a time, however many are due at once."""
    app, clock = clocked(bed)
    report = reporting(app)

    async def main() -> None:
        drafts = {f"tenant-{n:04}": report.draft(str(n)) for n in range(450)}
        assert len(await app.schedules.aput_many(drafts, every="1m")) == 450
        clock.advance(minutes=1)
        store = Counting(app.store)
        ticking = ticker(app, store=store)
        while await ticking.tick() == 0:
            assert not ticking.has_looked
        assert ticking.has_looked
        assert len(await jobs(app)) == 450
        assert store.largest <= 100
        assert store.asked["apply"] <= 6
        assert len(await app.schedules.alist("tenant-00")) == 100

    asyncio.run(main())


# -- workers ---------------------------------------------------------------------------------------


NURSERY = """
import asyncio
from windlass import Context, Windlass

app = Windlass()

@app.every("1s", isolate=True)
async def tidy(ctx: Context) -> list[str]:
    tasks = sorted(task.get_name() for task in asyncio.all_tasks())
    return [str(ctx.scheduled_for), *(name for name in tasks if name.startswith("windlass-"))]
"""


@pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
def test_an_isolated_handler_knows_its_tick_and_its_process_does_not_tick(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bed.directory / "ticking_nursery.py").write_text(NURSERY)
    monkeypatch.syspath_prepend(bed.directory)
    app: Windlass = importlib.import_module("ticking_nursery").app
    app.configure(url=bed.url)

    async def main() -> None:
        async with serving(app):
            await until(lambda: have(app, 1, State.COMPLETED), within=30)
        await app.aclose()

    asyncio.run(main())
    (job,) = [job for job in asyncio.run(jobs(app)) if job.state is State.COMPLETED][:1]
    tick = datetime.fromisoformat(job.headers[TICK])
    assert json.loads(job.result or b"") == [
        str(tick),
        "windlass-main",
        "windlass-run",
    ], "nothing else runs there"
    asyncio.run(app.aclose())


@on_embedded_stores
def test_a_burst_does_what_was_due_when_it_began(bed: Bed) -> None:
    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        await app.schedules.aput("s", "report", every="1m")
        clock.advance(minutes=1)
        await app.arun_worker(burst=True)
        assert [job.state for job in await jobs(app)] == [State.COMPLETED]

    asyncio.run(main())


@on_embedded_stores
def test_a_schedule_can_be_put_paused_and_run_while_a_worker_serves(bed: Bed) -> None:
    app, clock = clocked(bed)
    report = reporting(app)

    async def main() -> None:
        async with serving(app):
            await app.schedules.aput("s", report.draft("acme"), every="1m")
            clock.advance(minutes=1)
            await until(lambda: have(app, 1, State.COMPLETED))
            await app.schedules.apause("s")
            clock.advance(minutes=1)
            handle = await app.schedules.arun("s")
            await in_state(handle, State.COMPLETED)
            assert await handle.aresult() == "acme 2030-01-01 12:02:00+00:00"
            assert (await app.schedules.aget("s")).served
        assert len(await jobs(app)) == 2

    asyncio.run(main())
