"""Ticks that were missed, and ticks whose predecessor still runs or waits for its retry."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, log_lines, serving, until
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
from windlass import Context, Retry, State, Windlass
from windlass.core.schedules.definition import Overlap

pytestmark = pytest.mark.stores("postgres")


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
            await until(lambda: known(app, "flaky"))
            clock.advance(minutes=10)
            await until(lambda: have(app, 1, State.SCHEDULED))
            clock.advance(minutes=10)
            await until(lambda: have(app, 1, State.DEAD))
            await until(lambda: have(app, 1, State.COMPLETED))
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
            await until(lambda: known(app, "flaky"))
            clock.advance(minutes=10)
            await until(lambda: have(app, 1, State.SCHEDULED))
            for number in (2, 3):
                clock.advance(minutes=10)
                if overlap is None:
                    await until(lambda number=number: have(app, number, State.SCHEDULED))  # type: ignore[misc]
                else:
                    due = NOON + 20 * MINUTE
                    await until(lambda due=due: _is_put_off(app, "flaky", due))  # type: ignore[misc]
        assert await ticks(app) == ticked
        assert (await app.schedules.aget("flaky")).record.skipped == 0

    asyncio.run(main())


async def _is_put_off(app: Windlass, name: str, tick: datetime) -> bool:
    record = (await app.schedules.aget(name)).record
    return record.next == tick and record.alarm is not None and record.alarm > tick
