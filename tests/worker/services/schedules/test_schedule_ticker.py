"""Schedules in the store: who ticks, when, how often; after an outage, beside each other, by hand.

Most tests let tickers tick one round at a time, by a clock of their own; a few have whole workers.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.app_on_store import (
    Bed,
    Clock,
    Through,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    until,
)
from tests.support.worker_state import RecordingState
from windlass import Context, Job, Retry, State, StoreUnavailable, Windlass
from windlass.core.changes import Changes
from windlass.core.jobs.job import SCHEDULE, TICK
from windlass.core.jobs.queries import JobFilter
from windlass.core.schedules.definition import Overlap
from windlass.core.schedules.schedule import RECORD, UNSERVED, read_record
from windlass.worker.services.cluster_sampler import ClusterSampler
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker

pytestmark = pytest.mark.stores("postgres")

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def clocked(bed: Bed) -> tuple[Windlass, Clock]:
    clock = Clock()
    return bed.app(store=bed.store(clock=clock)), clock


def ticker(app: Windlass, *, store: Any = None) -> ScheduleTicker:
    """Make the service that a worker of an app would have."""
    return ScheduleTicker(
        app.store if store is None else store,
        kinds=dict.fromkeys(app.registry),
        declared=app.schedules.declared,
        ids=app.ids.next,
    )


async def jobs(app: Windlass) -> list[Job]:
    """Return all jobs, in the order of their ticks."""
    found = (await app.store.find(JobFilter(), limit=10_000)).jobs
    return sorted(found, key=lambda job: (job.headers.get(TICK, ""), job.id))


async def ticks(app: Windlass) -> list[float]:
    """Return for which ticks there are jobs, in minutes after noon."""
    times = [datetime.fromisoformat(job.headers[TICK]) for job in await jobs(app)]
    return [(time - NOON) / MINUTE for time in times]


def reporting(app: Windlass) -> Any:
    @app.job(queue="reports")
    async def report(ctx: Context, tenant: str = "acme") -> str:
        return f"{tenant} {ctx.scheduled_for}"

    return report


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
            await until(lambda: _known(app, "sweep"))
            clock.advance(minutes=31)
            await until(lambda: _have(app, 2, State.COMPLETED))
            assert await report.aenqueue("x") is not None
            await until(lambda: _have(app, 3, State.COMPLETED))
        done = {job.headers.get(SCHEDULE): job for job in await jobs(app)}
        assert done["acme"].result == b'"acme 2030-01-01 12:30:00+00:00"'
        assert (done["acme"].queue, done["sweep"].queue) == ("reports", "nightly")
        assert done[None].result == b'"x None"'
        assert seen == [NOON + 30 * MINUTE]

    asyncio.run(main())


async def _known(app: Windlass, name: str) -> bool:
    return RECORD + name in await app.store.records(RECORD)


async def _have(app: Windlass, count: int, state: State) -> bool:
    found = await app.store.find(JobFilter(states=(state,)), limit=1_000)
    return len(found.jobs) >= count


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


# -- after an outage -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manner", "made", "skipped"),
    [
        ({"catch_up": "skip"}, [], 5),
        ({"catch_up": "latest"}, [25], 4),
        ({"catch_up": "all", "overlap": "allow"}, [5, 10, 15, 20, 25], 0),
        ({"catch_up": "all", "overlap": "allow", "catch_up_limit": 2}, [20, 25], 3),
    ],
)
def test_ticks_missed_while_all_workers_were_down_follow_catch_up(
    bed: Bed, manner: dict[str, Any], made: list[float], skipped: int
) -> None:
    """Case 36. Each schedule gets what it asked for: nothing, one job for all, or one for each."""
    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        await app.schedules.aput("s", "report", every="5m", **manner)
        clock.advance(minutes=27)
        await ticker(app).tick()
        assert await ticks(app) == made
        status = await app.schedules.aget("s")
        assert (status.record.ticks, status.record.skipped) == (len(made), skipped)
        assert status.next == NOON + 30 * MINUTE
        clock.advance(minutes=3)
        await ticker(app).tick()
        after = [30] if "overlap" in manner or not made else []
        assert await ticks(app) == [*made, *after], "with overlap=skip the last one still waits"

    asyncio.run(main())


def test_caught_up_ticks_run_one_after_the_other(bed: Bed) -> None:
    """Case 36. With `all` and no word about overlap none is left out, and no two run at once."""
    app, clock = clocked(bed)
    running, seen = 0, []

    @app.job
    async def report(ctx: Context) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.01)
        seen.append(ctx.scheduled_for)
        running -= 1

    async def main() -> None:
        await app.schedules.aput("s", report.draft(), every="1m", catch_up="all")
        clock.advance(minutes=8)
        async with serving(app):
            # The clock stands still, so each is begun by the end of the one before.
            await until(lambda: len(seen) == 8)
        assert seen == [NOON + number * MINUTE for number in range(1, 9)]

    asyncio.run(main())


# -- one beside the other --------------------------------------------------------------------------


def test_a_tick_while_its_last_job_still_runs_is_skipped_and_logged(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        await app.schedules.aput("s", "report", every="1m")
        ticking = ticker(app)
        for _ in range(3):
            clock.advance(minutes=1)
            await ticking.tick()
        (job,) = await jobs(app)
        status = await app.schedules.aget("s")
        assert (status.record.ticks, status.record.skipped) == (1, 2)
        assert status.record.last_job == job.id
        await app.control.acancel(job.id)
        clock.advance(minutes=1)
        await ticking.tick()
        assert await ticks(app) == [1, 4]

    asyncio.run(main())
    lines = log_lines(caplog, "schedule.skipped")
    assert [line["tick"][11:16] for line in lines] == ["12:02", "12:03"]
    assert "is not finished" in lines[0]["why"]


def test_a_tick_waits_for_the_job_before_it_and_comes_when_that_has_ended(bed: Bed) -> None:
    app, clock = clocked(bed)
    go, began = asyncio.Event(), []

    @app.job
    async def report(ctx: Context) -> None:
        began.append(ctx.scheduled_for)
        await go.wait()

    async def main() -> None:
        await app.schedules.aput("s", report.draft(), every="1m", overlap="queue")
        clock.advance(minutes=1)
        async with serving(app):
            await until(lambda: len(began) == 1)
            clock.advance(minutes=1)
            waiting = NOON + 2 * MINUTE + timedelta(seconds=1)
            await until(lambda: _alarm_at(app, "s", waiting))
            assert len(await jobs(app)) == 1
            go.set()
            await until(lambda: len(began) == 2)
        assert began == [NOON + MINUTE, NOON + 2 * MINUTE]

    asyncio.run(main())


async def _alarm_at(app: Windlass, name: str, moment: datetime) -> bool:
    return (await app.schedules.aget(name)).record.alarm == moment


# -- failures --------------------------------------------------------------------------------------


def test_a_tick_that_fails_is_retried_by_its_own_policy_and_the_next_one_comes(bed: Bed) -> None:
    app, clock = clocked(bed)
    tries: Counter[datetime | None] = Counter()

    @app.every("10m", max_retries=1, overlap="allow")
    async def flaky(ctx: Context) -> None:
        tries[ctx.scheduled_for] += 1
        if ctx.scheduled_for == NOON + 10 * MINUTE:
            raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            await until(lambda: _known(app, "flaky"))
            clock.advance(minutes=10)
            await until(lambda: _have(app, 1, State.SCHEDULED))
            clock.advance(minutes=10)
            await until(lambda: _have(app, 1, State.DEAD))
            await until(lambda: _have(app, 1, State.COMPLETED))
        assert tries == {NOON + 10 * MINUTE: 2, NOON + 20 * MINUTE: 1}

    asyncio.run(main())


@pytest.mark.parametrize(("overlap", "ticked"), [(None, [10, 20, 30]), ("queue", [10])])
def test_a_tick_that_waits_for_its_retry_stops_its_schedule_only_if_ticks_queue(
    bed: Bed, overlap: Overlap | None, ticked: list[int]
) -> None:
    app, clock = clocked(bed)

    @app.every("10m", retry=Retry(max_retries=3, initial="5h"), overlap=overlap)
    async def flaky() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            await until(lambda: _known(app, "flaky"))
            clock.advance(minutes=10)
            await until(lambda: _have(app, 1, State.SCHEDULED))
            for number in (2, 3):
                clock.advance(minutes=10)
                if overlap is None:
                    await until(lambda number=number: _have(app, number, State.SCHEDULED))  # type: ignore[misc]
                else:
                    due = NOON + 20 * MINUTE
                    await until(lambda due=due: _is_put_off(app, "flaky", due))  # type: ignore[misc]
        assert await ticks(app) == ticked
        assert (await app.schedules.aget("flaky")).record.skipped == 0

    asyncio.run(main())


async def _is_put_off(app: Windlass, name: str, tick: datetime) -> bool:
    record = (await app.schedules.aget(name)).record
    return record.next == tick and record.alarm is not None and record.alarm > tick


def test_a_schedule_that_nobody_understands_stops_no_other(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """A zone that this host does not know, a record by a later release: told once, and left."""
    app, clock = clocked(bed)
    reporting(app)

    async def main() -> None:
        for name in ("zone", "shape", "fine"):
            await app.schedules.aput(name, "report", cron="* * * * *", overlap="allow")
        await _rewrite(app, "zone", lambda each: each["schedule"]["cadence"].update(tz="Mars/X"))
        await _rewrite(app, "shape", lambda record: record.update(next={"later": 1}))
        ticking = ticker(app)
        for _ in range(3):
            clock.advance(minutes=1)
            await ticking.tick()
        assert await ticks(app) == [1, 2, 3]
        assert {job.headers[SCHEDULE] for job in await jobs(app)} == {"fine"}

    asyncio.run(main())
    lines = log_lines(caplog, "schedule.broken")
    assert sorted(line["schedule"] for line in lines) == ["shape", "zone"]
    assert any("pip install tzdata" in line["why"] for line in lines)


def test_a_schedule_that_no_host_understands_is_ever_later_and_another_host_may_tick_it(
    bed: Bed,
) -> None:
    """Prevents the alert from never firing, and one host without time zones from delaying all."""
    app, clock = clocked(bed)
    reporting(app)
    state = RecordingState()
    sampler = ClusterSampler(app.store, state=state)

    async def main() -> None:
        for name in ("zone", "shape"):
            await app.schedules.aput(name, "report", cron="* * * * *", overlap="allow")
        await _rewrite(app, "zone", lambda each: each["schedule"]["cadence"].update(tz="Mars/X"))
        await _rewrite(app, "shape", lambda record: record.update(ticks="many"))
        ticking = ticker(app)
        clock.advance(minutes=1)
        await ticking.tick()
        await ticking.tick()
        ringing = await app.store.ringing(9)
        assert set(ringing.records) == {RECORD + "zone", RECORD + "shape"}, "others may be able to"
        for _ in range(15):
            clock.advance(seconds=20)
            await ticking.tick()
            await ticking.tick()
            await sampler.tick()
        assert 300 <= state.samples[-1][0]["schedule_lag"] < 301
        assert (await app.store.ringing(9)).records == {}, "they stand in nobody's way"
        marks = await app.store.records(UNSERVED)
        assert "pip install tzdata" in marks[UNSERVED + "zone"]["why"]
        assert "later release" in marks[UNSERVED + "shape"]["why"]
        assert [each.state for each in await app.schedules.alist()] == ["unserved"]
        await _rewrite(app, "zone", lambda each: each["schedule"]["cadence"].update(tz="UTC"))
        await _rewrite(app, "shape", lambda record: record.update(ticks=0))
        clock.advance(minutes=1)
        await ticking.tick()
        await sampler.tick()
        assert {job.headers[SCHEDULE] for job in await jobs(app)} == {"zone", "shape"}
        assert state.samples[-1][0]["schedule_lag"] == 0
        assert await app.store.records(UNSERVED) == {}

    asyncio.run(main())


async def _rewrite(app: Windlass, name: str, change: Any) -> None:
    def decide(known: Any, _now: datetime) -> Changes[None]:
        record = known[RECORD + name]
        change(record)
        return Changes(answer=None, records={RECORD + name: record})

    await app.store.apply([RECORD + name], decide)


# -- who ticks what --------------------------------------------------------------------------------


def test_only_a_worker_that_knows_the_kind_ticks_and_what_nobody_serves_is_shown(bed: Bed) -> None:
    app, clock = clocked(bed)
    reporting(app)
    stranger = bed.app(store=app.store)

    @stranger.job
    async def other() -> None: ...

    async def main() -> None:
        await app.schedules.aput("s", "report", every="1m", catch_up="all", overlap="allow")
        clock.advance(minutes=2)
        strange = ticker(stranger)
        for _ in range(3):
            await strange.tick()
            clock.advance(seconds=50)
        assert await jobs(app) == []
        (shown,) = await app.schedules.alist()
        assert not shown.served
        assert shown.record.unserved
        clock.advance(minutes=2)
        await ticker(app).tick()
        assert await ticks(app) == [1, 2, 3, 4, 5, 6]
        assert not (await app.schedules.aget("s")).record.unserved

    asyncio.run(main())


def test_a_schedule_that_nobody_serves_stands_in_nobodys_way(bed: Bed) -> None:
    """Prevents hundreds of orphans, which ring for ever, from hiding what rings after them."""
    app, clock = clocked(bed)
    reporting(app)
    orphan = bed.app(store=app.store)

    @orphan.job
    async def gone() -> None: ...

    async def main() -> None:
        orphans = {f"orphan-{number:03}": gone.draft() for number in range(400)}
        await orphan.schedules.aput_many(orphans, every="1m")
        clock.advance(minutes=3)
        await app.schedules.aput("s", "report", every="1s")
        clock.advance(seconds=1)
        ticking = ticker(app)
        for _ in range(6):
            await ticking.tick()
        assert len(await jobs(app)) == 1

    asyncio.run(main())


def test_a_schedule_that_nobody_serves_is_ever_later_until_somebody_does(bed: Bed) -> None:
    """Prevents the alert from never firing, since what nobody serves is put off again and again."""
    app, clock = clocked(bed)
    reporting(app)
    stranger = bed.app(store=app.store)
    state = RecordingState()
    sampler = ClusterSampler(app.store, state=state)

    async def main() -> None:
        await app.schedules.aput("s", "report", every="1m")
        await app.schedules.aput("gone", "report", every="1m")
        clock.advance(minutes=1)
        ours, strange = ticker(app), ticker(stranger)
        for _ in range(16):
            clock.advance(seconds=20)
            await strange.tick()
            await sampler.tick()
        lags = [sample["schedule_lag"] for sample, _ in state.samples]
        assert 320 <= lags[-1] < 321
        assert lags == sorted(lags)
        await app.schedules.aremove("gone")
        clock.advance(minutes=1)
        await ours.tick()
        clock.advance(seconds=20)
        await sampler.tick()
        assert state.samples[-1][0]["schedule_lag"] == 0
        assert await app.store.records(UNSERVED) == {}

    asyncio.run(main())


def test_many_that_another_app_should_serve_do_not_delay_ours(bed: Bed) -> None:
    """Prevents the window of what rings from being full of what is not for us."""
    app, clock = clocked(bed)
    reporting(app)
    other = bed.app(store=app.store)

    @other.job
    async def foreign() -> None: ...

    async def main() -> None:
        theirs = {f"their-{number}": foreign.draft() for number in range(300)}
        await other.schedules.aput_many(theirs, every="10m")
        clock.advance(seconds=1)
        await app.schedules.aput("mine", "report", every="10m", catch_up="skip")
        clock.advance(minutes=10)
        await ticker(app).tick()
        assert len(await jobs(app)) == 1

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
            await until(lambda: _have(app, 1, State.COMPLETED), within=30)
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
            await until(lambda: _have(app, 1, State.COMPLETED))
            await app.schedules.apause("s")
            clock.advance(minutes=1)
            handle = await app.schedules.arun("s")
            await in_state(handle, State.COMPLETED)
            assert await handle.aresult() == "acme 2030-01-01 12:02:00+00:00"
            assert (await app.schedules.aget("s")).served
        assert len(await jobs(app)) == 2

    asyncio.run(main())
