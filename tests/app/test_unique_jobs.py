"""A unique job that waits or runs is the answer to a second enqueue."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import STORES, Bed, in_state, serving
from windlass import State

pytestmark = pytest.mark.stores(*STORES)


def test_a_unique_job_that_waits_or_runs_is_the_answer_to_a_second_enqueue(bed: Bed) -> None:
    app = bed.app()
    go, began = asyncio.Event(), asyncio.Event()

    @app.job
    async def sync_user(user: int) -> str:
        began.set()
        await go.wait()
        return "done"

    once = sync_user.using(unique="user:42")

    async def main() -> None:
        first = await once.aenqueue(42)
        again = await once.aenqueue(42)
        assert (first.is_duplicate, again.is_duplicate, again.id) == (False, True, first.id)
        assert repr(again) == f"Handle({first.id}, duplicate)"
        async with serving(app):
            await began.wait()
            running = await once.aenqueue(42)
            assert (running.is_duplicate, running.id) == (True, first.id)
            other = await sync_user.using(unique="user:43").aenqueue(43)
            assert not other.is_duplicate
            go.set()
            assert await running.aresult("60s") == "done"
            after = await once.aenqueue(42)
            assert (after.is_duplicate, after.id != first.id) == (False, True)
            assert await after.aresult("60s") == "done"

    asyncio.run(main())


def test_a_unique_key_is_freed_by_death_and_by_cancellation(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def fail() -> None:
        raise ValueError("no")

    once = fail.using(unique="k")

    async def main() -> None:
        first = await once.aenqueue()
        await first.acancel()
        second = await once.aenqueue()
        assert not second.is_duplicate
        async with serving(app):
            await in_state(second, State.DEAD)
        assert not (await once.aenqueue()).is_duplicate

    asyncio.run(main())


def test_kinds_do_not_share_unique_keys(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def one() -> None: ...

    @app.job
    async def two() -> None: ...

    async def main() -> None:
        await one.using(unique="k").aenqueue()
        assert not (await two.using(unique="k").aenqueue()).is_duplicate

    asyncio.run(main())
