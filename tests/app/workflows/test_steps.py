"""A step is done once in the life of its job, whatever happens between the runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
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
from windlass import (
    Callbacks,
    Context,
    LeaseLost,
    PermanentError,
    Retry,
    Secret,
    Snooze,
    State,
    StepError,
    StoreBusy,
    StoreUnavailable,
    SyncContext,
    current_step,
)
from windlass.core.jobs.job import Checkpoint
from windlass.core.workflows.step_log import Steps

pytestmark = pytest.mark.stores("postgres")

DAY = timedelta(days=1)
KEY = "k1:" + 43 * "A" + "="
AT_ONCE = Retry(max_retries=5, initial="1ms")


@dataclass
class Order:
    id: int
    lines: tuple[str, ...] = ()


def twice(number: int) -> int:
    return 2 * number


def test_a_retry_goes_on_after_the_last_finished_step(bed: Bed) -> None:
    app = bed.app()
    calls: list[str] = []

    async def fetch(page: int) -> Order:
        calls.append(f"fetch {page}")
        return Order(page, lines=("tea",))

    def store(order: Order) -> None:
        calls.append(f"store {order}")

    @app.job(retry=AT_ONCE)
    async def sync(ctx: Context) -> int:
        order = await ctx.step("fetch", fetch, 7)
        if ctx.attempt == 1:
            raise ConnectionError
        await ctx.step("store", store, order=order)
        if ctx.attempt == 2:
            raise ConnectionError
        return order.id

    async def main() -> None:
        async with serving(app):
            assert await (await sync.aenqueue()).aresult("60s") == 7

    asyncio.run(main())
    assert calls == ["fetch 7", "store Order(id=7, lines=('tea',))"]


def test_a_replay_returns_what_the_first_run_returned(bed: Bed) -> None:
    """A tuple that came back as a list in later runs only would be found in production."""
    app = bed.app()
    seen: list[Any] = []

    def untyped() -> Any:
        return (1, Order(2))

    def typed() -> tuple[int, Order]:
        return (1, Order(2))

    @app.job(retry=AT_ONCE)
    async def look(ctx: Context) -> None:
        seen.append(await ctx.step("untyped", untyped))
        seen.append(await ctx.step("typed", typed))
        if ctx.attempt == 1:
            raise ConnectionError

    async def main() -> None:
        async with serving(app):
            await (await look.aenqueue()).aresult("60s")

    asyncio.run(main())
    assert seen == 2 * [[1, {"id": 2, "lines": []}], (1, Order(2))]


def test_a_job_sleeps_without_a_slot_and_goes_on_where_it_was(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    calls: list[str] = []
    heard: list[str] = []

    def callback(name: str) -> Any:
        return lambda *_: heard.append(name)

    around = Callbacks(completed=callback("completed"), failed=callback("failed"))

    def has_slept(times: int) -> bool:
        return len(log_lines(caplog, "job.slept")) == times

    @app.job(middleware=[around])
    async def remind(ctx: Context) -> str:
        await ctx.step("first", calls.append, "first")
        await ctx.sleep("1d")
        await ctx.step("second", calls.append, "second")
        await ctx.sleep(clock.now + DAY, name="the other day")
        return "done"

    async def main() -> None:
        async with serving(app, concurrency=1, lease="1h"):
            handle = await remind.aenqueue()
            for name, count in (("sleep-1", 1), ("the other day", 2)):
                await until(partial(has_slept, count))
                job = await handle.ainfo()
                assert (job.state, job.reason) == (State.SCHEDULED, f"asleep: {name}")
                assert (job.due_at, job.history) == (clock.now + DAY, ())
                clock.advance(days=1)
            assert await handle.aresult("60s") == "done"

    asyncio.run(main())
    assert calls == ["first", "second"]
    assert heard == ["completed"]
    assert not log_lines(caplog, "job.raised")


def test_a_handler_in_a_thread_has_steps_and_sleeps(bed: Bed) -> None:
    app = bed.app()
    threads: list[bool] = []

    def work(number: int) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        assert current_step().name == "work"
        return number

    @app.job(retry=AT_ONCE)
    def handle(ctx: SyncContext) -> int:
        number = ctx.step("work", work, 3)
        ctx.sleep("1ms")
        if ctx.attempt == 2:
            raise ConnectionError
        return number

    async def main() -> None:
        async with serving(app):
            assert await (await handle.aenqueue()).aresult("60s") == 3

    asyncio.run(main())
    assert threads == [False]


@on_embedded_stores
def test_steps_of_several_tasks_are_known_by_their_names(bed: Bed) -> None:
    app = bed.app()
    calls: list[int] = []

    async def part(number: int) -> int:
        await asyncio.sleep(0.02 if number == 1 and len(calls) == 0 else 0)
        calls.append(number)
        return number

    @app.job(retry=AT_ONCE)
    async def gather(ctx: Context) -> list[int]:
        before = await ctx.step("before", twice, 1)
        parts = range(1, 4) if ctx.attempt == 1 else range(3, 0, -1)
        found = await asyncio.gather(*(ctx.step(f"part-{n}", part, n) for n in parts))
        after = await ctx.step("after", twice, 2)
        if ctx.attempt == 1:
            raise ConnectionError
        return [before, *found, after]

    async def main() -> None:
        async with serving(app):
            assert await (await gather.aenqueue()).aresult("60s") == [2, 3, 2, 1, 4]

    asyncio.run(main())
    assert sorted(calls) == [1, 2, 3]


@on_embedded_stores
@pytest.mark.parametrize(
    ("before", "after", "expected", "came"),
    [
        ("ab", "ba", "'a'", "'b' came"),
        ("ab", "b", "'a'", "'b' came"),
        ("ab", "a", "'b'", "the handler ended"),
        ("ab", "axb", "'b'", "'x' came"),
        ("a", "", "'a'", "the handler ended"),
    ],
)
def test_changed_code_between_attempts_ends_the_job_and_says_what_has_changed(
    bed: Bed, before: str, after: str, expected: str, came: str
) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> None:
        for name in before if ctx.attempt == 1 else after:
            await ctx.step(name, twice, 1)
        if ctx.attempt == 1:
            raise ConnectionError

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
        assert (job.attempt, job.reason) == (2, "permanent error")
        assert job.error is not None
        assert job.error.type == "windlass.StepsChanged"
        assert f"{expected} was recorded next, but {came}" in job.error.message

    asyncio.run(main())


@on_embedded_stores
def test_steps_may_be_added_after_those_that_are_recorded(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> str:
        for name in "ab" if ctx.attempt == 1 else "abc":
            await ctx.step(name, twice, 1)
        if ctx.attempt == 1:
            raise ConnectionError
        return "done"

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == "done"

    asyncio.run(main())


@on_embedded_stores
def test_an_error_of_the_steps_cannot_be_passed_over(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def walk(ctx: Context) -> None:
        await ctx.step("a", twice, 1)
        for _ in range(2):
            with pytest.raises(StepError, match="two steps of one run are named"):
                await ctx.step("a", twice, 1)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
        assert 'like f"a-{i}"' in str(job.error)

    asyncio.run(main())


async def in_another_step(ctx: Context) -> None:
    async def inner() -> None:
        await ctx.step("inner", twice, 1)

    await ctx.step("outer", inner)


async def asleep_in_another_task(ctx: Context) -> None:
    await asyncio.gather(ctx.sleep("1s"))


async def without_a_name(ctx: Context) -> None:
    await ctx.step("", twice, 1)


async def not_what_was_said(ctx: Context) -> None:
    def said() -> int:
        return "not a number"  # type: ignore[return-value]

    await ctx.step("wrong", said)


async def not_json(ctx: Context) -> None:
    await ctx.step("nan", lambda: float("nan"))


async def too_much(ctx: Context) -> None:
    await ctx.step("much", lambda: 300_000 * "x")


@on_embedded_stores
@pytest.mark.parametrize(
    ("trial", "remedy"),
    [
        (in_another_step, "call it in the handler"),
        (asleep_in_another_task, "must be called in the handler's own task"),
        (without_a_name, "a step must have a name"),
        (
            not_what_was_said,
            "'walk, step wrong' cannot be stored: it does not match the return annotation",
        ),
        (not_json, "NaN and infinities have no JSON form"),
        (too_much, "store it elsewhere and return a reference"),
    ],
)
def test_invalid_steps_are_refused_with_the_remedy(
    bed: Bed, trial: Callable[[Context], Awaitable[None]], remedy: str
) -> None:
    app = bed.app()

    @app.job
    async def walk(ctx: Context) -> None:
        await trial(ctx)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
            assert remedy in str(job.error)
            assert job.attempt == 1

    asyncio.run(main())


@on_embedded_stores
def test_the_key_of_a_step_stays_the_same(bed: Bed) -> None:
    app = bed.app()
    keys: list[str] = []

    def charge() -> None:
        keys.append(current_step().key)
        if len(keys) < 3:
            raise ConnectionError

    @app.job(retry=AT_ONCE)
    async def pay(ctx: Context) -> str:
        await ctx.step("charge", charge)
        return str(ctx.job_id)

    async def main() -> None:
        async with serving(app):
            job_id = await (await pay.aenqueue()).aresult("60s")
        assert keys == 3 * [f"{job_id}/charge"]
        with pytest.raises(LookupError, match=r"ctx\.step"):
            current_step()

    asyncio.run(main())


@on_embedded_stores
def test_a_step_has_a_timeout_of_its_own(bed: Bed) -> None:
    app = bed.app()

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> str:
        nap = 60 if ctx.attempt == 1 else 0
        await ctx.step("nap", asyncio.sleep, nap, timeout="20ms")
        return "done"

    async def main() -> None:
        async with serving(app):
            handle = await walk.aenqueue()
            assert await handle.aresult("60s") == "done"
            job = await handle.ainfo()
        assert [entry.__struct_config__.tag for entry in Steps(job.steps).entries] == [
            "failed",
            "done",
        ]

    asyncio.run(main())


@on_embedded_stores
def test_a_snooze_before_the_recorded_steps_changes_nothing(bed: Bed) -> None:
    app = bed.app()
    calls: list[str] = []

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> Snooze | str:
        if ctx.attempt == 2:
            return Snooze("1ms")
        await ctx.step("a", calls.append, "a")
        if ctx.attempt == 1:
            raise ConnectionError
        return "done"

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == "done"

    asyncio.run(main())
    assert calls == ["a"]


@on_embedded_stores
def test_a_handler_that_catches_everything_sleeps_all_the_same(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def walk(ctx: Context) -> str:
        try:
            await ctx.sleep("1ms")
        except BaseException:
            return "never stored"
        return "woke up"

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == "woke up"

    asyncio.run(main())


@on_embedded_stores
def test_a_batch_has_no_steps(bed: Bed) -> None:
    app = bed.app()

    async def walk(ctx: Context, call_next: Any) -> Any:
        await ctx.step("a", twice, 1)
        return await call_next()

    @app.job(batch_size=2, batch_timeout="1ms", middleware=[walk])
    async def index(documents: list[int]) -> None:
        del documents

    async def main() -> None:
        async with serving(app):
            job = await in_state(await index.aenqueue(1), State.DEAD)
        assert "use steps in a kind without batch_size=" in str(job.error)

    asyncio.run(main())


# -- the store -------------------------------------------------------------------------------------


class Away(Through):
    """A store whose checkpoints fail for a while, after they were written or before."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.failing = ["before", "after", "before"]

    async def checkpoint(self, checkpoints: list[Checkpoint]) -> list[bool]:
        when = self.failing.pop(0) if self.failing else ""
        if when == "before":
            raise StoreUnavailable("away")
        answer: list[bool] = await self.inner.checkpoint(checkpoints)
        if when == "after":
            raise StoreUnavailable("gone")
        return answer


def test_steps_wait_for_a_store_that_is_away(bed: Bed) -> None:
    store = Away(bed.store())
    app = bed.app(store=store)
    calls: list[int] = []

    @app.job
    async def walk(ctx: Context) -> int:
        await ctx.step("one", calls.append, 1)
        await ctx.step("two", calls.append, 2)
        return ctx.attempt

    async def main() -> None:
        async with serving(app):
            assert await (await walk.aenqueue()).aresult("60s") == 1

    asyncio.run(main())
    assert calls == [1, 2]
    assert store.failing == []


@on_embedded_stores
def test_a_step_waits_for_a_row_that_somebody_holds_and_is_not_done_again(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents an effect that happens twice since what it did could not be noted at once."""
    held: UUID | None = None

    class Held(Through):
        failing = 2

        async def checkpoint(self, checkpoints: list[Checkpoint]) -> list[bool]:
            if any(each.id == held for each in checkpoints) and self.failing:
                self.failing -= 1
                raise StoreBusy("somebody else holds it")
            answer: list[bool] = await self.inner.checkpoint(checkpoints)
            return answer

    app = bed.app(store=Held(bed.store()))
    calls: list[str] = []

    @app.job
    async def walk(ctx: Context, name: str) -> int:
        await ctx.step("one", calls.append, name)
        return ctx.attempt

    async def main() -> None:
        nonlocal held
        handle = await walk.aenqueue("held")
        held = handle.id
        other = await walk.aenqueue("other")
        async with serving(app):
            assert await other.aresult("60s") == 1
            assert await handle.aresult("60s") == 1

    asyncio.run(main())
    assert sorted(calls) == ["held", "other"]
    assert [line["job_id"] for line in log_lines(caplog, "checkpoint.delayed")][-1:] == [held]


def test_a_step_whose_fence_is_lost_raises_and_its_run_ends(bed: Bed) -> None:
    app = bed.app()
    raised: list[BaseException] = []

    class Robbed(Through):
        async def checkpoint(self, checkpoints: list[Checkpoint]) -> list[bool]:
            if not raised:
                checkpoints = [msgspec.structs.replace(each, token=1) for each in checkpoints]
            answer: list[bool] = await self.inner.checkpoint(checkpoints)
            return answer

    app.store = Robbed(app.store)  # type: ignore[assignment]

    @app.job
    async def walk(ctx: Context) -> int:
        try:
            await ctx.step("one", twice, 1)
        except BaseException as error:
            raised.append(error)
            raise
        return ctx.attempt

    async def main() -> None:
        async with serving(app):
            handle = await walk.aenqueue()
            assert await handle.aresult("60s") == 2
            job = await handle.ainfo()
        assert isinstance(raised[0], LeaseLost | asyncio.CancelledError)
        assert (job.failures, job.history[0].outcome) == (0, "released")

    asyncio.run(main())


def test_checkpoints_of_many_runs_go_together(bed: Bed) -> None:
    groups: list[int] = []

    class Counting(Through):
        async def checkpoint(self, checkpoints: list[Checkpoint]) -> list[bool]:
            groups.append(len(checkpoints))
            answer: list[bool] = await self.inner.checkpoint(checkpoints)
            return answer

    app = bed.app(store=Counting(bed.store()))

    async def one() -> None: ...

    @app.job
    async def walk(ctx: Context) -> None:
        for number in range(5):
            await ctx.step(f"step-{number}", one)

    async def main() -> None:
        handles = [await walk.aenqueue() for _ in range(40)]
        async with serving(app, concurrency=40):
            await asyncio.gather(*(handle.aresult("60s") for handle in handles))

    asyncio.run(main())
    assert sum(groups) == 200
    assert len(groups) < 150


# -- secrets ---------------------------------------------------------------------------------------


def test_secrets_of_arguments_and_of_all_steps_are_masked_together(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents that what one step returns unmasks what was known before."""
    caplog.set_level("INFO")
    app = bed.app(encryption_keys=KEY)

    def login(number: int) -> Secret[str]:
        return Secret(f"hunter2-{number}")

    @app.job
    async def pay(ctx: Context, card: Secret[str]) -> None:
        first = await ctx.step("first", login, 1)
        second = await ctx.step("second", login, 2)
        told = f"{card.reveal()}, {first.reveal()}, {second.reveal()}"
        ctx.log.info("logged.in", text=told)
        raise PermanentError(told)

    async def main() -> None:
        async with serving(app):
            job = await in_state(await pay.aenqueue(Secret("4111-1111")), State.DEAD)
        assert job.error is not None
        assert "4111" not in str(job)
        assert "hunter2" not in str(job)

    asyncio.run(main())
    assert "logged.in" in caplog.text
    assert "4111" not in caplog.text
    assert "hunter2" not in caplog.text


@on_embedded_stores
def test_a_secret_that_a_step_returns_is_sealed_and_masked(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app = bed.app(encryption_keys=KEY)
    seen: list[str] = []

    def login() -> Secret[str]:
        return Secret("hunter2-token")

    @app.job(retry=AT_ONCE)
    async def walk(ctx: Context) -> None:
        token = await ctx.step("login", login)
        seen.append(token.reveal())
        ctx.log.info("logged.in", text=f"with {token.reveal()}")
        if ctx.attempt == 1:
            raise ConnectionError(f"refused {token.reveal()}")
        raise PermanentError(token.reveal())

    async def main() -> None:
        async with serving(app):
            job = await in_state(await walk.aenqueue(), State.DEAD)
        assert "hunter2" not in str(job)
        assert "$secret" in job.steps[0]

    asyncio.run(main())
    assert seen == 2 * ["hunter2-token"]
    assert "hunter2" not in caplog.text
