"""Breakers in workers: they open, let probes through, close; and what waits is charged nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.support.app_on_store import (
    QUICK,
    Bed,
    Through,
    in_state,
    log_lines,
    on_embedded_stores,
    serving,
    until,
)
from tests.worker.policies.breaker_gateway import Down, Gateway, becomes, status_of
from windlass import Backoff, Breaker, ErrorClass, Retry, State, Windlass
from windlass.core.errors import StoreUnavailable
from windlass.core.jobs.job import Lane
from windlass.core.policies.breaker_record import BreakerState
from windlass.testing import travel
from windlass.worker.policies.breaker_gate import BreakerGate

pytestmark = pytest.mark.stores("postgres")
AT_ONCE = Retry(max_retries=1000, backoff=Backoff(base=timedelta(0)))


def test_a_breaker_counts_failures_of_two_workers_and_closes_after_a_probe(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "windlass")
    app, gateway = bed.app(), Gateway()

    @app.job(breaker=Breaker("stripe", failures=5, cooldown="2s"), retry=AT_ONCE)
    async def charge() -> None:
        await gateway.call()

    @app.job(breaker="stripe", retry=AT_ONCE)
    async def refund() -> None:
        await gateway.call()

    @app.job
    async def mail() -> None:
        pass

    async def main() -> None:
        drafts = [kind.draft() for _ in range(20) for kind in (charge, refund)]
        handles = await app.aenqueue_many(drafts)
        async with serving(app, concurrency=1), serving(app, concurrency=1):
            status = await becomes(app, BreakerState.OPEN)
            assert status.failures == 5
            assert (
                "5 failures in a row, the last: tests.worker.policies.breaker_gateway" in status.why
            )
            assert status.until is not None
            # The other worker learns of it with its own next failure, or within a second.
            assert gateway.calls <= 20
            await (await mail.aenqueue()).aresult("60s")
            waiting = [job for job in [await each.ainfo() for each in handles] if not job.attempt]
            assert len(waiting) >= 15
            assert {(job.state, job.failures) for job in waiting} == {(State.PENDING, 0)}
            await becomes(app, BreakerState.HALF_OPEN)
            gateway.up = True
            for handle in handles:
                await in_state(handle, State.COMPLETED)
            assert (await status_of(app)).state is BreakerState.CLOSED
            jobs = [await handle.ainfo() for handle in handles]
            assert sum(job.failures for job in jobs) == gateway.calls - 40
        assert (await status_of(app)).probes == {}

    asyncio.run(main())
    changes = ["breaker.opened", "breaker.half_opened", "breaker.closed"]
    assert all(log_lines(caplog, change) for change in changes)
    assert log_lines(caplog, "breaker.opened")[0]["breaker"] == "stripe"
    assert log_lines(caplog, "breaker.closed")[0]["reason"] == "a probe succeeded"


def test_one_that_is_open_already_lets_nothing_start_at_a_workers_start() -> None:
    app, gateway = Windlass("memory://"), Gateway()

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        await gateway.call()

    @app.job
    async def mail() -> None:
        pass

    with travel(app) as t:
        charge.enqueue()
        mail.enqueue()
        app.control.open_breaker("stripe")
        t.advance("30d")
        t.assert_completed(mail)
        t.assert_enqueued(charge)
        assert gateway.calls == 0


@on_embedded_stores
def test_by_hand_it_opens_and_closes_while_workers_serve(bed: Bed) -> None:
    app, gateway = bed.app(), Gateway()

    @app.job(breaker=Breaker("stripe", failures=1), max_retries=0)
    async def charge() -> None:
        await gateway.call()

    async def main() -> None:
        async with serving(app):
            await app.control.aclose_breaker("stripe")
            for _ in range(3):
                await in_state(await charge.aenqueue(), State.DEAD)
            assert gateway.calls == 3
            gateway.up = True
            await app.control.aopen_breaker("stripe")
            await asyncio.sleep(1.2)  # Within a second all workers know.
            handle = await charge.aenqueue()
            await asyncio.sleep(0.3)  # Nothing happens, which takes its time.
            assert gateway.calls == 3
            await app.control.areset_breaker("stripe")
            await in_state(handle, State.COMPLETED)
            await becomes(app, BreakerState.CLOSED)

    asyncio.run(main())


@on_embedded_stores
def test_breaker_events_are_written_once_the_store_is_back(bed: Bed) -> None:
    class Deaf(Through):
        outages = 2

        async def apply(self, names: Any, decide: Any) -> Any:
            if self.outages > 0 and any("breaker:" in name for name in names):
                self.outages -= 1
                raise StoreUnavailable("not now")
            return await self.inner.apply(names, decide)

    app = bed.app(store=Deaf(bed.store()))

    @app.job(breaker=Breaker("stripe", failures=3), max_retries=0)
    async def charge() -> None:
        raise Down

    async def main() -> None:
        async with serving(app):
            for _ in range(3):
                await charge.aenqueue()
            await becomes(app, BreakerState.OPEN)

    asyncio.run(main())


@on_embedded_stores
def test_without_breakers_there_is_no_gate_and_no_record(bed: Bed) -> None:
    app = bed.app()

    @app.job(max_retries=0)
    async def charge() -> None:
        raise Down

    async def main() -> None:
        async with serving(app) as worker:
            assert not worker._parts.engine.gates
            await in_state(await charge.aenqueue(), State.DEAD)
            assert await app.control.abreakers() == []

    asyncio.run(main())


@on_embedded_stores
@pytest.mark.parametrize(("named", "rest"), [(True, 1), (False, 5)])
def test_breakers_that_nobody_named_are_looked_at_seldom_while_they_are_closed(
    bed: Bed, named: bool, rest: float
) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(breaker=Breaker("stripe") if named else None)
    async def charge(down: bool) -> None:
        if down:
            raise Down

    async def main() -> None:
        async with serving(app) as worker:
            (gate,) = worker._parts.gates
            assert isinstance(gate, BreakerGate)
            await in_state(await charge.aenqueue(down=False), State.COMPLETED)
            now = asyncio.get_running_loop().time
            left = gate._look_at - now()
            assert rest - 1 < left <= rest
            await app.aenqueue_many(charge.draft(down=True) for _ in range(5))
            await becomes(app, BreakerState.OPEN, "stripe" if named else "kind:charge")
            await until(lambda: gate.bars(Lane("default", "charge")))
            assert gate._look_at - now() <= 1

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_a_breaker_writes_nothing_while_no_job_fails(bed: Bed) -> None:
    class Counted(Through):
        applied = 0

        async def apply(self, names: Any, decide: Any) -> Any:
            self.applied += "breaker:stripe" in names
            return await self.inner.apply(names, decide)

    store = Counted(bed.store())
    app = bed.app(store=store)

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        pass

    async def main() -> None:
        async with serving(app):
            await until(lambda: store.applied == 1)  # That the breaker exists.
            for handle in await app.aenqueue_many(charge.draft() for _ in range(200)):
                await in_state(handle, State.COMPLETED)
        assert store.applied == 1

    asyncio.run(main())


@on_embedded_stores
def test_a_burst_does_not_wait_for_an_open_breaker(bed: Bed) -> None:
    app, gateway = bed.app(), Gateway()

    @app.job(breaker=Breaker("stripe", failures=3, cooldown="1h"), retry=AT_ONCE)
    async def charge() -> None:
        await gateway.call()

    @app.job
    async def mail() -> None:
        pass

    async def main() -> None:
        charges = await app.aenqueue_many(charge.draft() for _ in range(10))
        mails = await app.aenqueue_many(mail.draft() for _ in range(10))
        await asyncio.wait_for(app.arun_worker(burst=True, concurrency=1, **QUICK), 60)
        assert {await handle.astate() for handle in mails} == {State.COMPLETED}
        assert State.PENDING in {await handle.astate() for handle in charges}
        assert 3 <= gateway.calls <= 5

    asyncio.run(main())
