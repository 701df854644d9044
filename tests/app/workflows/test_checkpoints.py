"""Checkpoints of steps: how they are written, fenced, grouped and sealed."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.support.app_on_store import (
    Bed,
    Through,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
)
from windlass import (
    Context,
    LeaseLost,
    PermanentError,
    Retry,
    Secret,
    State,
    StoreBusy,
    StoreUnavailable,
)
from windlass.core.jobs.job import Checkpoint

pytestmark = pytest.mark.stores("postgres")
KEY = "k1:" + 43 * "A" + "="
AT_ONCE = Retry(max_retries=5, initial="1ms")


def twice(number: int) -> int:
    return 2 * number


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
