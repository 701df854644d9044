"""Time travel with schedules, sleeps, events, sagas and flows: a month of them in a moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from windlass import Context, EventTimeout, Permanent, Windlass
from windlass.testing import travel


def test_a_month_of_ticks_passes() -> None:
    app, seen = Windlass("memory://"), list[datetime | None]()

    @app.cron("0 7 * * MON-FRI", tz="Europe/Berlin")
    async def digest(ctx: Context) -> None:
        seen.append(ctx.tick)

    with travel(app, at=datetime(2026, 3, 1, 12, tzinfo=UTC)) as t:
        t.advance("30d")
        t.assert_completed(digest, count=22)
    hours = [tick.astimezone(UTC).hour for tick in seen if tick is not None]
    # Berlin's clocks go forward on the last Sunday of March.
    assert hours == [6] * 20 + [5] * 2


def test_a_job_sleeps_for_a_month_and_waits_for_an_answer() -> None:
    app = Windlass("memory://")

    @app.job
    async def trial(ctx: Context, user: str) -> str:
        await ctx.step("welcome", str.upper, user)
        await ctx.sleep("30d")
        await ctx.step("ask", str.lower, user)
        try:
            return str(await ctx.wait_for(f"answer:{user}", timeout="7d"))
        except EventTimeout:
            return "silence"

    with travel(app) as t:
        trial.enqueue("Ada")
        trial.enqueue("Bob")
        t.advance("29d")
        t.advance("2d")
        app.send_event("answer:Ada", "yes")
        t.run_due()
        t.assert_completed(trial, result="yes")
        t.advance("7d")
        t.assert_completed(trial, result="silence")


def test_what_was_undone_can_be_seen() -> None:
    app, done = Windlass("memory://"), list[str]()

    def note(what: str) -> None:
        done.append(what)

    @app.job(max_retries=0)
    async def checkout(ctx: Context) -> None:
        await ctx.step("reserve", note, "reserved", undo=lambda _: note("released"))
        await ctx.step("charge", note, "charged", undo=lambda _: note("refunded"))
        raise Permanent("no parcel service")

    with travel(app) as t:
        checkout.enqueue()
        t.drain()
        t.assert_dead(checkout)
        t.assert_undone(checkout, "charge", "reserve")
    assert done == ["reserved", "charged", "refunded", "released"]


def test_a_flow_goes_from_parents_to_children() -> None:
    app = Windlass("memory://")

    @app.job
    async def part(number: int) -> int:
        return number * number

    @app.job
    async def total(ctx: Context) -> Any:
        return sum(await ctx.results())

    with travel(app) as t:
        app.group([part.draft(number) for number in range(4)], then=total.draft()).enqueue()
        t.drain()
        t.assert_completed(total, result=14)
