"""Schedules, steps, events, sagas and flows in a test that moves the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass import Context, EventTimeout, PermanentError, Retry, Windlass
from windlass.testing import Travel, travel, travel_fixture

app = Windlass("postgresql://nobody@nowhere.invalid/none")
ran: list[Any] = []
t = travel_fixture(app)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def note(what: str) -> str:
    ran.append(what)
    return what


async def refuse(what: str) -> None:
    raise PermanentError(f"no {what}")


@app.job(name="ship")
async def ship(ctx: Context, order: int) -> str:
    await ctx.step("reserve", note, "reserved")
    await ctx.sleep("1d", name="night")
    try:
        paid = await ctx.wait_for(f"paid:{order}", timeout="3d")
    except EventTimeout:
        return "never paid"
    return f"paid by {paid['by']}"


@app.job(name="check_out")
async def check_out(ctx: Context) -> None:
    await ctx.step("reserve", note, "reserved", undo=note)
    await ctx.step("charge", note, "charged", undo=note)
    await ctx.step("send", refuse, "stamps")


@app.job(name="double")
async def double(ctx: Context, number: int = 0) -> int:
    results = await ctx.results()
    return 2 * (number or sum(results))


def test_a_schedule_ticks_for_a_month_in_no_time() -> None:
    local = Windlass("memory://")

    @local.every("1h")
    async def tick(ctx: Context) -> None:
        ran.append(ctx.scheduled_for)

    with travel(local) as t:
        start, began = t.now, time.process_time()
        assert t.advance("30d") == 720
        assert ran == [start + timedelta(hours=hours) for hours in range(1, 721)]
        assert time.process_time() - began < 5, "a second is usual"


def test_a_cron_goes_by_its_own_time_zone() -> None:
    local = Windlass("memory://")

    @local.cron("30 2 * * *", tz="Europe/Berlin")
    async def nightly(ctx: Context) -> None:
        ran.append(t.now)

    with travel(local, at=datetime(2026, 3, 27, tzinfo=UTC)) as t:
        t.advance("4d")
    # In the night of the 29th there is no half past two: it comes right after the gap.
    assert ran == [
        datetime(2026, 3, 27, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ]


def test_a_tick_that_fails_is_retried_and_the_next_one_still_comes() -> None:
    local = Windlass("memory://")

    @local.every("1h", retry=Retry(max_retries=1, initial="5m"))
    async def tick() -> None:
        ran.append(t.now)
        raise ValueError

    with travel(local) as t:
        start = t.now
        t.advance("150m")
        t.assert_dead(tick, count=2)
    assert [(at - start) / timedelta(minutes=1) for at in ran] == [60, 65, 120, 125]


def test_draining_ends_although_a_schedule_never_does() -> None:
    local = Windlass("memory://")

    @local.every("1h")
    async def tick() -> None: ...

    @local.job
    async def later() -> None: ...

    with travel(local) as t:
        later.using(delay="150m").enqueue()
        t.run_all()
        t.assert_completed(later)
        t.assert_completed(tick, count=2)


def test_a_job_sleeps_and_waits_for_an_event(t: Travel) -> None:
    handle = ship.enqueue(7)
    t.run_due()
    t.assert_enqueued(handle, due="1d")
    t.assert_steps(handle, "reserve", "night")
    t.advance("1d")
    t.assert_enqueued(handle, due="3d")
    app.send_event("paid:7", {"by": "card"})
    t.run_due()
    t.assert_completed(handle, result="paid by card")
    assert t.steps(handle)[:2] == ["reserve", "night"]
    assert ran == ["reserved"]


def test_an_event_that_never_comes_is_not_waited_for_any_longer(t: Travel) -> None:
    start = t.now
    handle = ship.enqueue(8)
    t.run_all()
    t.assert_completed(handle, result="never paid")
    assert t.now == start + timedelta(days=4)


def test_a_job_that_fails_for_good_is_undone_in_reverse(t: Travel) -> None:
    handle = check_out.enqueue()
    t.run_due()
    t.assert_dead(handle, error="no stamps")
    t.assert_steps(handle, "reserve", "charge")
    t.assert_undone(handle, "charge", "reserve")
    assert ran == ["reserved", "charged", "charged", "reserved"]


def test_a_flow_runs_to_its_end_in_one_moment(t: Travel) -> None:
    app.group([double.draft(n) for n in (1, 2, 3)], then=double.draft()).enqueue()
    t.run_due()
    t.assert_completed(double, result=24)


def test_a_flow_waits_for_a_job_that_is_tried_again(t: Travel) -> None:
    app.chain(double.draft(4), double.using(delay="1h").draft(), double.draft()).enqueue()
    t.run_all()
    t.assert_completed(double, result=32)
