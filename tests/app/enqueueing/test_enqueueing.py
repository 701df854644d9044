"""What `using(...)` says about a job holds, and what it cannot mean is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.support.app_on_store import STORES, Bed, Clock, in_state, log_lines, serving, until
from windlass import Context, JobCancelled, PayloadInvalid, PayloadTooLarge, State, Windlass
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter

pytestmark = pytest.mark.stores(*STORES)


def noted(app: Windlass) -> Any:
    @app.job(max_retries=5)
    async def note(ctx: Context, text: str = "") -> dict[str, str]:
        return dict(ctx.headers)

    return note


async def stored(app: Windlass) -> list[Job]:
    return list((await app.store.find(JobFilter(), limit=1000)).jobs)


def test_options_come_with_the_job(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    note = noted(app)
    producer = note.using(
        queue="slow", priority=7, delay="5m", max_retries=2, timeout="3s", expires="1h"
    )

    async def main() -> None:
        job = await (await producer.aenqueue("x")).ainfo()
        assert (job.queue, job.priority, job.max_retries) == ("slow", 7, 2)
        assert (job.state, job.due_at) == (State.SCHEDULED, clock.now + timedelta(minutes=5))
        assert job.timeout == timedelta(seconds=3)
        assert job.expires_at == clock.now + timedelta(hours=1)
        plain = await (await note.aenqueue("x")).ainfo()
        assert (plain.queue, plain.priority, plain.state) == ("default", 0, State.PENDING)

    asyncio.run(main())


def test_options_can_be_added_to_options(bed: Bed) -> None:
    app = bed.app()
    producer = noted(app).using(queue="slow", priority=1).using(priority=2)

    async def main() -> None:
        job = await (await producer.aenqueue()).ainfo()
        assert (job.queue, job.priority) == ("slow", 2)

    asyncio.run(main())


def test_a_job_can_be_due_at_an_instant_in_any_time_zone(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    east = (clock.now + timedelta(hours=1)).astimezone(timezone(timedelta(hours=9)))
    producer = noted(app).using(at=east)

    async def main() -> None:
        job = await (await producer.aenqueue()).ainfo()
        assert (job.state, job.due_at) == (State.SCHEDULED, clock.now + timedelta(hours=1))
        past = await (await producer.using(at=clock.now - timedelta(days=1)).aenqueue()).ainfo()
        assert (past.state, past.due_at) == (State.PENDING, clock.now)

    asyncio.run(main())


def test_a_delayed_job_runs_when_it_is_due_and_not_before(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    note = noted(app)

    async def main() -> None:
        async with serving(app, lease="1h"):
            late = await note.using(delay="10m").aenqueue()
            await (await note.aenqueue()).aresult("60s")
            assert await late.astate() is State.SCHEDULED
            clock.advance(minutes=10)
            assert await late.aresult("60s") == {}

    asyncio.run(main())


def test_times_that_mean_nothing_are_refused(bed: Bed) -> None:
    note = noted(bed.app())
    with pytest.raises(ValueError, match="must have a time zone"):
        note.using(at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="cannot be combined"):
        note.using(at=datetime(2030, 1, 1, tzinfo=UTC), delay="1m")
    with pytest.raises(ValueError, match="must have a time zone"):
        note.using(expires=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="delay must be a number and a unit, got"):
        note.using(delay="whenever")
    with pytest.raises(ValueError, match="delay must not be negative"):
        note.using(delay=-1)
    with pytest.raises(ValueError, match="timeout must be a number and a unit, got"):
        note.using(timeout="long")


def test_a_priority_has_bounds(bed: Bed) -> None:
    note = noted(bed.app())
    for priority in (-1000, 0, 1000):
        note.using(priority=priority)
    for priority in (-1001, 1001, 10**30):
        with pytest.raises(ValueError, match="between -1,000 and 1,000"):
            note.using(priority=priority)


def test_other_options_have_bounds_too(bed: Bed) -> None:
    note = noted(bed.app())
    with pytest.raises(ValueError, match="max_retries must be a whole number"):
        note.using(max_retries=-1)
    with pytest.raises(ValueError, match="a queue must have a name"):
        note.using(queue="")
    with pytest.raises(ValueError, match="unique key"):
        note.using(unique="x" * 201)


def test_headers_reach_the_handler(bed: Bed) -> None:
    app = bed.app()
    note = noted(app)

    async def main() -> None:
        async with serving(app):
            handle = await note.using(headers={"trace": "abc", "ünï": "→"}).aenqueue()
            assert await handle.aresult("60s") == {"trace": "abc", "ünï": "→"}

    asyncio.run(main())


def test_headers_that_are_not_text_are_refused(bed: Bed) -> None:
    """Prevents: a header that the store cannot read back, and every claim fails on that row."""
    note = noted(bed.app())
    with pytest.raises((ValueError, PayloadInvalid), match="header"):
        note.using(headers={"n": 5})
    with pytest.raises((ValueError, PayloadInvalid), match="header"):
        note.using(headers={"n": None})


@pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
def test_a_job_that_no_claim_can_read_does_not_stop_the_others(bed: Bed) -> None:
    """Prevents: one row written by somebody else takes every worker out of service."""
    app = bed.app()
    note = noted(app)

    async def main() -> None:
        bad = await note.using(queue="bad").aenqueue()
        with sqlite3.connect(bed.path) as db:
            db.execute("UPDATE jobs SET headers = ? WHERE id = ?", ('{"n": 5}', str(bad.id)))
        db.close()
        async with serving(app):
            assert await (await note.aenqueue()).aresult("60s") == {}

    asyncio.run(main())


def test_an_expired_job_is_not_run_and_says_why(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    ran: list[str] = []

    @app.job
    async def greet(name: str) -> str:
        ran.append(name)
        return name

    async def main() -> None:
        late = await greet.using(expires="1m").aenqueue("late")
        fresh = await greet.using(expires="3m").aenqueue("fresh")
        absolute = await greet.using(expires=clock.now + timedelta(seconds=90)).aenqueue("absolute")
        clock.advance(minutes=2)
        async with serving(app):
            assert await fresh.aresult("60s") == "fresh"
            for handle in (late, absolute):
                with pytest.raises(JobCancelled, match="expired at 2030-01-01T12:01"):
                    await handle.aresult("60s")
        assert ran == ["fresh"]
        job = await late.ainfo()
        assert (job.state, job.failures) == (State.CANCELLED, 0)

    asyncio.run(main())


def test_max_retries_of_the_job_replace_those_of_the_handler(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=5)
    async def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            job = await in_state(await fail.using(max_retries=0).aenqueue(), State.DEAD)
            assert (job.failures, job.reason) == (1, "gave up after 1 failure")

    asyncio.run(main())


def test_the_timeout_of_the_job_replaces_that_of_the_handler(bed: Bed) -> None:
    app = bed.app()

    @app.job(timeout="1h", max_retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving(app):
            job = await in_state(await hang.using(timeout="50ms").aenqueue(), State.DEAD)
            assert job.error is not None
            assert str(job.error) == "TimeoutError: no result within 50ms"

    asyncio.run(main())


def test_many_jobs_of_many_kinds_are_enqueued_at_once(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def one(x: int) -> int:
        return x

    @app.job
    def two(y: str) -> str:
        return y

    async def main() -> None:
        drafts: list[Any] = [one.draft(1), two.using(queue="q", unique="u").draft("a")]
        drafts += [two.using(queue="q", unique="u").draft("b"), one.draft(2)]
        handles = await app.aenqueue_many(drafts)
        assert [handle.is_duplicate for handle in handles] == [False, False, True, False]
        assert handles[2].id == handles[1].id
        async with serving(app):
            assert [await handle.aresult("60s") for handle in handles] == [1, "a", "a", 2]
        assert await app.aenqueue_many([]) == []

    asyncio.run(main())


def test_many_jobs_are_enqueued_all_or_none(bed: Bed) -> None:
    app = bed.app(max_payload=100)
    note = noted(app)

    async def main() -> None:
        with pytest.raises(PayloadTooLarge):
            await app.aenqueue_many(note.draft("x" * n) for n in (1, 2, 1000))
        assert await stored(app) == []

    asyncio.run(main())


def test_a_draft_enqueued_twice_is_enqueued_once(bed: Bed) -> None:
    app = bed.app()
    draft = noted(app).draft("x")

    async def main() -> None:
        first, again = await app.aenqueue_many([draft, draft])
        third = (await app.aenqueue_many([draft]))[0]
        assert first.id == again.id == third.id
        assert len(await stored(app)) == 1

    asyncio.run(main())


def test_arguments_that_do_not_fit_are_refused_by_name(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def pay(amount: int, currency: str = "EUR") -> None: ...

    untyped: Any = pay
    with pytest.raises(PayloadInvalid, match="'amount'"):
        untyped.draft("much")
    with pytest.raises(PayloadInvalid, match="'amount'"):
        untyped.draft()
    with pytest.raises(PayloadInvalid, match="'sum'"):
        untyped.draft(1, sum=2)
    with pytest.raises(TypeError, match="takes 2 arguments, got 3"):
        untyped.draft(1, "EUR", 3)
    with pytest.raises(TypeError, match="several values for amount"):
        untyped.draft(1, amount=2)
    assert asyncio.run(stored(app)) == []


def test_a_payload_above_the_limit_is_refused_with_a_remedy(bed: Bed) -> None:
    note = noted(bed.app(max_payload=1000))
    note.draft("x" * 900)
    with pytest.raises(PayloadTooLarge, match="enqueue its id"):
        note.draft("x" * 1000)


def test_ids_sort_in_the_order_of_their_making(bed: Bed) -> None:
    note = noted(bed.app())
    ids = [note.draft().job.id for _ in range(2000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 2000


def test_jobs_can_enqueue_jobs_from_the_loop_and_from_threads(bed: Bed) -> None:
    app = bed.app()
    seen: Counter[str] = Counter()

    @app.job
    async def leaf(where: str) -> None:
        seen[where] += 1

    @app.job
    async def on_the_loop() -> None:
        await leaf.aenqueue("loop")

    @app.job
    def in_a_thread() -> None:
        leaf.enqueue("thread")
        app.enqueue_many([leaf.draft("thread"), leaf.draft("thread")])

    async def main() -> None:
        async with serving(app):
            await on_the_loop.aenqueue()
            await in_a_thread.aenqueue()
            await until(lambda: sum(seen.values()) == 4)

    asyncio.run(main())
    assert seen == {"loop": 1, "thread": 3}


def test_a_time_that_is_past_is_said_to_be(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    note = noted(bed.app())
    note.using(at=datetime.now(UTC) - timedelta(seconds=5))
    note.using(at=datetime.now(UTC) + timedelta(hours=1))
    assert not log_lines(caplog, "enqueue.past")
    note.using(at=datetime.now(UTC) - timedelta(hours=1))
    (line,) = log_lines(caplog, "enqueue.past")
    assert line["note"] == "the job is due at once"
    assert line["ago"].startswith("1h")


@pytest.mark.parametrize("expires", [0, "0s", datetime(2020, 1, 1, tzinfo=UTC)])
def test_an_expiry_that_is_past_is_said_to_be(
    bed: Bed, caplog: pytest.LogCaptureFixture, expires: float | str | datetime
) -> None:
    """Prevents: a job that never runs, and nobody knows."""
    note = noted(bed.app())
    note.using(expires="1h")
    note.using(expires=datetime.now(UTC) + timedelta(hours=1))
    assert not log_lines(caplog, "enqueue.expired")
    note.using(expires=expires)
    (line,) = log_lines(caplog, "enqueue.expired")
    assert line["note"] == "the job is cancelled instead of run"
