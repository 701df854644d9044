"""What a test can rely on that moves the time of its app."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.testing.travelled_app import app, note, ran
from windlass import (
    CalledFromEventLoop,
    ConfigError,
    Context,
    PayloadInvalid,
    ResultTimeout,
    Retry,
    Snooze,
    State,
    Unique,
    Windlass,
)
from windlass.app import handle
from windlass.testing import Travel, travel, travel_fixture

t = travel_fixture(app)


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    assert app._store is None, "the app was not given back"


@app.job
def note_in_a_thread(what: str) -> str:
    ran.append((what, threading.current_thread() is threading.main_thread()))
    return what


@app.job(retry=Retry(max_retries=3, initial="1m"))
async def fail(ctx: Context, succeed_on: int = 99) -> int:
    assert ctx.job.started_at is not None
    ran.append(ctx.job.started_at)
    if ctx.attempt < succeed_on:
        raise ValueError("not yet")
    return ctx.attempt


@app.job
async def hourly(left: int) -> None:
    ran.append(left)
    if left:
        await hourly.using(delay="1h").aenqueue(left - 1)


# -- time -------------------------------------------------------------------------------------


def test_only_what_is_due_runs_while_the_clock_stands_still(t: Travel) -> None:
    note.enqueue("now")
    later = note.using(delay="1s").enqueue("later")
    assert t.run_due() == 1
    assert ran == ["now"]
    t.assert_enqueued(later, due="1s")


def test_jobs_enqueued_by_a_handler_run_in_the_same_moment(t: Travel) -> None:
    hourly.enqueue(1)
    assert t.run_due() == 1
    assert t.advance("59m") == 0
    assert t.advance("1m") == 1
    assert ran == [1, 0]


def test_a_month_of_hours_takes_no_time(t: Travel) -> None:
    start, began = t.now, time.process_time()
    hourly.enqueue(720)
    assert t.advance("30d") == 721
    assert t.now == start + timedelta(days=30)
    assert time.process_time() - began < 20, "half a second is usual"


def test_each_job_runs_at_its_own_time_and_not_at_the_end(t: Travel) -> None:
    start = t.now
    job = fail.enqueue()
    t.advance("1d")
    minutes = [(at - start) / timedelta(minutes=1) for at in ran]
    # Without jitter: it waits 1, 2 and 4 minutes, and that is always so.
    assert minutes == [0, 1, 3, 7]
    assert t.assert_dead(job, error=ValueError).failures == 4


def test_draining_waits_for_every_retry_and_for_no_longer(t: Travel) -> None:
    start = t.now
    job = fail.enqueue(succeed_on=3)
    assert t.run_all() == 3
    assert t.now == start + timedelta(minutes=3)
    t.assert_completed(job, result=3)


def test_draining_gives_up_on_a_job_that_never_ends(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job
    async def wait_for_ever() -> Snooze:
        return Snooze("1h")

    with travel(local) as own:
        wait_for_ever.enqueue()
        with pytest.raises(AssertionError, match=r"still waiting after 2d:\n  .*wait_for_ever"):
            own.run_all(within="2d")


def test_time_can_be_moved_to_a_moment_but_not_back(t: Travel) -> None:
    new_year = datetime(2031, 1, 1, tzinfo=UTC)
    at_new_year = note.using(at=new_year).enqueue("fireworks")
    t.advance_to(new_year - timedelta(seconds=1))
    t.assert_enqueued(at_new_year, due="1s")
    t.advance_to(new_year)
    t.assert_completed(at_new_year)
    with pytest.raises(ValueError, match="time can only move forward from 2031-01-01"):
        t.advance_to(new_year - timedelta(days=1))
    with pytest.raises(ValueError, match="must have a time zone, got 2099-01-01T00:00:00"):
        t.advance_to(datetime(2099, 1, 1))  # noqa: DTZ001 - that is what is refused.


def test_a_result_that_no_travel_will_bring_is_not_waited_for(
    t: Travel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a test that forgets to run the jobs hangs, without a message."""
    monkeypatch.setattr(handle, "_STANDS_STILL_SECONDS", 0.05)
    for job in (note.enqueue("now"), note.using(delay="1d").enqueue("later")):
        with pytest.raises(ResultTimeout, match=r"still \w+; under travel\(\) .* t\.run_due\(\)"):
            job.result()
    t.advance("1d")
    assert job.state() is State.COMPLETED
    job.result()


def test_a_result_that_another_task_brings_is_waited_for() -> None:
    async def main() -> None:
        with travel(app) as own:
            job = await note.aenqueue("now")
            waiting = asyncio.create_task(job.aresult())
            await asyncio.sleep(0.05)
            await own.arun_due()
            await waiting

    asyncio.run(main())


def test_a_travel_begins_at_the_given_time_and_others_may_follow() -> None:
    start = datetime(2026, 3, 29, 1, 59, tzinfo=UTC)
    told: list[datetime] = []
    with travel(app, at=start, follow=told.append) as t:
        note.using(delay="1m").enqueue("later")
        t.advance("2m")
        assert told == [start + timedelta(minutes=minutes) for minutes in (0, 1, 2)]
    with pytest.raises(ValueError, match="time zone"), travel(app, at=start.replace(tzinfo=None)):
        pass


# -- whose app it is ---------------------------------------------------------------------------


def test_the_app_is_given_back_even_if_the_test_fails() -> None:
    local = Windlass("memory://")
    before = local.store
    with pytest.raises(KeyError), travel(local):
        assert local.store is not before
        raise KeyError
    assert local.store is before


def test_nothing_is_left_of_the_travel_before(t: Travel) -> None:
    note.enqueue("this")
    with travel(app) as inner:
        assert inner.jobs() == []
        note.enqueue("that")
        inner.run_due()
    assert ran == ["that"]
    t.run_due()
    assert ran == ["that", "this"]


def test_more_jobs_than_a_memory_store_holds_can_wait(t: Travel) -> None:
    app.enqueue_many([note.draft("x") for _ in range(1_001)])
    assert t.run_due() == 1_001
    t.assert_completed(note, count=1_001)


def test_arguments_go_through_the_real_codec(t: Travel) -> None:
    with pytest.raises(PayloadInvalid, match="what"):
        note.enqueue(object())  # type: ignore[arg-type]


def test_a_job_in_a_transaction_is_refused_or_there_at_once_as_the_test_wants(t: Travel) -> None:
    connection = object()
    with pytest.raises(ConfigError, match="tx_at_once=True"):
        note.using(tx=connection).enqueue("booked")

    async def enqueue() -> None:
        await note.using(tx=connection).aenqueue("booked too")

    with pytest.raises(ConfigError, match="tx_at_once=True"):
        asyncio.run(enqueue())
    with travel(app, tx_at_once=True) as own:
        note.using(tx=connection).enqueue("booked")
        asyncio.run(enqueue())
        own.run_due()
    assert ran == ["booked", "booked too"]


# -- in coroutines -----------------------------------------------------------------------------


def test_in_a_coroutine_handlers_run_in_its_own_loop() -> None:
    local = Windlass("memory://")
    loops: list[object] = []

    @local.job
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    async def main() -> None:
        with travel(local) as t:
            await look.aenqueue()
            await t.arun_due()
            await look.using(delay="1d").aenqueue()
            await t.aadvance("1d")
            await look.using(delay="1d").aenqueue()
            await t.arun_all()
            await t.aadvance_to(t.now + timedelta(days=1))
            t.assert_completed(look, count=3)
            assert loops == [asyncio.get_running_loop()] * 3

    asyncio.run(main())


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.run_due(),
        lambda t: t.advance("1d"),
        lambda t: t.advance_to(t.now),
        lambda t: t.run_all(),
    ],
)
def test_blocking_forms_refuse_to_block_an_event_loop(call: Callable[[Travel], object]) -> None:
    async def main() -> None:
        with travel(app) as t, pytest.raises(CalledFromEventLoop, match=r"await t\.a"):
            call(t)

    asyncio.run(main())


def test_the_loop_of_a_test_stays_the_same_from_call_to_call(t: Travel) -> None:
    local = Windlass("memory://")
    loops: list[object] = []

    @local.job
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    with travel(local) as own:
        for _ in range(2):
            look.enqueue()
            own.run_due()
    assert loops[0] is loops[1]


# -- what runs is the worker -------------------------------------------------------------------


def test_def_handlers_run_in_a_thread_and_in_order(t: Travel) -> None:
    for number in range(20):
        note_in_a_thread.enqueue(str(number))
    t.run_due()
    assert ran == [(str(number), False) for number in range(20)]


def test_a_more_urgent_job_runs_first_even_if_it_comes_later(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job
    async def first() -> None:
        ran.append("first")
        await urgent.using(priority=10).aenqueue()

    @local.job
    async def second() -> None:
        ran.append("second")

    @local.job
    async def urgent() -> None:
        ran.append("urgent")

    with travel(local) as own:
        first.enqueue()
        second.enqueue()
        own.run_due()
    assert ran == ["first", "urgent", "second"]


def test_a_job_that_is_too_late_expires(t: Travel) -> None:
    local = Windlass("memory://")

    @local.job
    async def offer() -> None: ...

    with travel(local, queues="other") as own:
        late = offer.using(expires="1h").enqueue()
        own.advance("2h")
        own.assert_enqueued(late)
    with travel(local) as own:
        late = offer.using(delay="2h", expires="1h").enqueue()
        own.run_all()
        own.assert_cancelled(late)


def test_a_unique_key_is_held_for_its_time(t: Travel) -> None:
    once = note.using(unique=Unique("digest", until="1d"))
    assert not once.enqueue("a").is_duplicate
    t.advance("23h")
    assert once.enqueue("b").is_duplicate
    t.advance("1h")
    assert not once.enqueue("c").is_duplicate
    t.run_due()
    assert ran == ["a", "c"]


def test_two_travels_end_alike(t: Travel) -> None:
    told = []
    for _ in range(2):
        with travel(app) as own:
            fail.enqueue()
            hourly.enqueue(5)
            own.run_all()
            told.append([own.describe(job) for job in own.jobs()])
            assert all(job.state in (State.DEAD, State.COMPLETED) for job in own.jobs())
    assert told[0] == told[1]
