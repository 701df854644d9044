"""A schedule that no worker serves or understands stands in the way of no other."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from tests.support.app_on_store import Bed, log_lines
from tests.support.worker_state import RecordingState
from tests.worker.services.schedules.ticking import clocked, jobs, reporting, ticker, ticks
from windlass import Windlass
from windlass.core.changes import Changes
from windlass.core.jobs.job import SCHEDULE
from windlass.core.schedules.schedule import RECORD, UNSERVED
from windlass.worker.services.cluster_sampler import ClusterSampler

pytestmark = pytest.mark.stores("postgres")


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
