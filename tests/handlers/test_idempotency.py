"""Idempotency keys: what a handler is told by, and what is not done twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving
from windlass import Backoff, CalledFromEventLoop, Context, Kind, Retry, State, SyncContext, Unique

pytestmark = pytest.mark.stores("postgres")


@dataclass
class Receipt:
    number: int


def test_a_key_is_the_same_in_every_run_and_after_a_redrive(bed: Bed) -> None:
    app = bed.app()
    seen: list[str] = []

    @app.job(retry=Retry(max_retries=1, backoff=Backoff(base=timedelta(hours=1))))
    async def fail(ctx: Context) -> None:
        seen.append(ctx.idempotency_key)
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            for key in (None, "charge-7"):
                seen.clear()
                handle = await fail.using(idempotency_key=key).aenqueue()
                await in_state(handle, State.SCHEDULED)
                await app.control.aretry(handle.id)
                await in_state(handle, State.DEAD)
                await app.control.aredrive([handle.id])
                await in_state(handle, State.SCHEDULED)
                assert len(seen) == 3
                assert set(seen) == {key or f"windlass-{handle.id}"}

    asyncio.run(main())


def test_a_handler_hears_that_its_key_was_completed_before(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def in_a_loop(ctx: Context) -> bool:
        return await ctx.already_done()

    @app.job
    def in_a_thread(ctx: SyncContext) -> bool:
        return ctx.already_done()

    async def main() -> None:
        async with serving(app):
            for handler in (in_a_loop, in_a_thread):
                keyed = handler.using(idempotency_key="charge-7")
                assert [await (await keyed.aenqueue()).aresult("60s") for _ in range(3)] == [
                    False,
                    True,
                    True,
                ], "each kind has keys of its own"
                other = handler.using(idempotency_key="charge-8")
                assert await (await other.aenqueue()).aresult("60s") is False
                for _ in range(2):
                    assert await (await handler.aenqueue()).aresult("60s") is False

    asyncio.run(main())


@on_embedded_stores
def test_asking_in_a_blocking_way_is_refused_in_an_event_loop(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def ask(ctx: SyncContext) -> str:
        async def inside() -> None:
            with pytest.raises(CalledFromEventLoop, match=r"await ctx\.already_done\(\)"):
                ctx.already_done()

        asyncio.run(inside())
        return "refused"

    async def main() -> None:
        async with serving(app):
            assert await (await ask.aenqueue()).aresult("60s") == "refused"

    asyncio.run(main())


def test_an_idempotent_kind_gives_the_stored_result_without_a_run(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    runs: list[int] = []
    completed: list[Any] = []

    @app.on_job_complete
    def note(ctx: Context, result: Any) -> None:
        completed.append(result)

    @app.job(idempotent="result", unique="invoice")
    async def charge(invoice: int) -> Receipt:
        runs.append(invoice)
        return Receipt(len(runs))

    async def main() -> None:
        async with serving(app):
            first = await charge.aenqueue(7)
            assert await first.aresult("60s") == Receipt(1)
            again = await charge.aenqueue(7)
            assert not again.is_duplicate, "the first has ended, and its key is free"
            assert await again.aresult("60s") == Receipt(1)
            assert await (await charge.aenqueue(8)).aresult("60s") == Receipt(2)
            assert runs == [7, 8]
            (line,) = log_lines(caplog, "job.already_done")
            assert (line["first"], line["job_id"]) == (first.id, again.id)
            assert line["key"] == "7"
        assert completed == [Receipt(1), Receipt(1), Receipt(2)]

    with caplog.at_level("INFO"):
        asyncio.run(main())


def test_an_idempotent_kind_runs_what_failed_and_what_has_no_key(bed: Bed) -> None:
    app = bed.app()
    runs: list[str] = []

    @app.job(idempotent="result", idempotency_key="key", max_retries=0)
    def charge(ctx: SyncContext, key: str | None, fail: bool = False) -> str:
        runs.append(ctx.idempotency_key)
        if fail:
            raise ValueError("no")
        return "paid"

    async def main() -> None:
        async with serving(app):
            await in_state(await charge.aenqueue("a", fail=True), State.DEAD)
            for key in ("a", "a", None, None):
                assert await (await charge.aenqueue(key)).aresult("60s") == "paid"
            assert runs[:2] == ["a", "a"]
            assert len(runs) == 4

    asyncio.run(main())


def test_a_key_given_with_the_job_goes_before_the_kinds_own(bed: Bed) -> None:
    app = bed.app()
    kind = Kind("charge", dict[str, int], idempotency_key="invoice")

    @app.job(kind, unique=Unique("invoice"), idempotent="result")
    async def charge(ctx: Context, payload: dict[str, int]) -> str:
        return ctx.idempotency_key

    async def main() -> None:
        async with serving(app):
            assert await (await app.producer(kind).aenqueue({"invoice": 7})).aresult("60s") == "7"
            own = charge.using(idempotency_key="mine", headers={"a": "b"})
            handle = await own.aenqueue({"invoice": 7})
            assert await handle.aresult("60s") == "mine"
            job = await handle.ainfo()
            assert job.headers == {"a": "b", "idempotency-key": "mine"}
            renamed = await charge.using(unique="k").aenqueue({"invoice": 7})
            assert await renamed.aresult("60s") == "7", "stored, by the key of the arguments"

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_transaction_that_completes_its_job_makes_its_key_done(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def pay(ctx: Context) -> bool | None:
        if await ctx.already_done():
            return True
        async with ctx.transaction() as conn:
            await conn.execute("SELECT 1")
        return None

    async def main() -> None:
        async with serving(app):
            keyed = pay.using(idempotency_key="k")
            assert await (await keyed.aenqueue()).aresult("60s") is None
            assert await (await keyed.aenqueue()).aresult("60s") is True

    asyncio.run(main())
