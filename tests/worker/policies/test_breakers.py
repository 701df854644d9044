"""Breakers in workers: they open, let probes through, close; and what waits is charged nothing."""

from __future__ import annotations

import asyncio
import importlib
import sys
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
from windlass import Backoff, Breaker, Cancel, ConfigError, ErrorClass, Retry, State, Windlass
from windlass.core.changes import Changes
from windlass.core.errors import StoreUnavailable
from windlass.core.jobs.job import Lane
from windlass.core.policies.breaker import Rule
from windlass.core.policies.breaker_record import (
    BreakerState,
    BreakerStatus,
    Failure,
    Success,
    record_of,
)
from windlass.core.workers import WorkerInfo
from windlass.testing import travel
from windlass.worker.policies.breaker_gate import BreakerGate
from windlass.worker.policies.breaker_view import BreakerView

pytestmark = pytest.mark.stores("postgres")

AT_ONCE = Retry(max_retries=1000, backoff=Backoff(base=timedelta(0)))


class Down(Exception):
    pass


class Gateway:
    """What all jobs depend on; it is up or down, and counts its calls."""

    def __init__(self) -> None:
        self.up = False
        self.calls = 0
        self.at_once = 0
        self.most_at_once = 0

    async def call(self) -> None:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.01)
        finally:
            self.at_once -= 1
        if not self.up:
            raise Down


async def status_of(app: Windlass, name: str = "stripe") -> BreakerStatus:
    (status,) = [each for each in await app.control.abreakers() if each.name == name]
    return status


async def becomes(app: Windlass, state: BreakerState, name: str = "stripe") -> BreakerStatus:
    async def is_so() -> bool:
        known = {each.name: each for each in await app.control.abreakers()}
        return name in known and known[name].state is state

    await until(is_so)
    return await status_of(app, name)


async def put(app: Windlass, status: BreakerStatus) -> None:
    """Write a record, as other workers would have."""
    name = f"breaker:{status.name}"
    await app.store.apply(
        [name], lambda _, __: Changes(answer=1, records={name: record_of(status)})
    )


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
                "5 failures in a row, the last: tests.worker.policies.test_breakers" in status.why
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


def test_while_it_is_half_open_no_more_jobs_run_at_once_than_probes(bed: Bed) -> None:
    app, gateway = bed.app(), Gateway()
    gateway.up = True
    hold = asyncio.Event()

    @app.job(breaker=Breaker("stripe", probes=2), retry=AT_ONCE)
    async def charge() -> None:
        await gateway.call()
        await hold.wait()

    async def main() -> None:
        await put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN))
        handles = await app.aenqueue_many(charge.draft() for _ in range(30))
        async with serving(app, concurrency=10), serving(app, concurrency=10):
            await until(lambda: gateway.calls == 2)
            await asyncio.sleep(1.5)  # Nothing happens, which takes its time.
            assert gateway.calls == 2
            assert sum((await status_of(app)).probes.values()) == 2
            hold.set()
            await becomes(app, BreakerState.CLOSED)
            for handle in handles:
                await in_state(handle, State.COMPLETED)

    asyncio.run(main())


def test_a_probe_that_fails_opens_it_again() -> None:
    app, gateway = Windlass("memory://"), Gateway()

    @app.job(breaker=Breaker("stripe", cooldown="1h"), retry=AT_ONCE)
    async def charge() -> None:
        await gateway.call()

    with travel(app, concurrency=10) as t:
        asyncio.run(put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN)))
        app.enqueue_many(charge.draft() for _ in range(30))
        t.run_due()
        status = asyncio.run(status_of(app))
        assert status.state is BreakerState.OPEN
        assert status.why.startswith("a probe failed: ")
        assert gateway.calls == 1
        t.advance("59m")
        assert gateway.calls == 1
        t.advance("1m")
        assert gateway.calls == 2


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


def test_the_probe_of_a_worker_comes_back_when_its_lease_has_ended(bed: Bed) -> None:
    """Not before: one whose lease has merely run out may still be at it."""
    app, gateway = bed.app(), Gateway()
    gateway.up = True

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        await gateway.call()

    async def main() -> None:
        ghost = WorkerInfo(
            id="ghost",
            name="ghost",
            host="there",
            pid=1,
            release="0",
            lease=timedelta(milliseconds=1),
            slots=1,
        )
        await app.store.open()
        await app.store.register(ghost)
        await put(
            app,
            BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN, probes={"ghost": 1}),
        )
        handle = await charge.aenqueue()
        async with serving(app):
            await asyncio.sleep(1.5)  # Nothing happens, which takes its time.
            assert gateway.calls == 0
            await app.store.retire("ghost")
            await in_state(handle, State.COMPLETED)
            await becomes(app, BreakerState.CLOSED)
        assert (await status_of(app)).probes == {}

    asyncio.run(main())


def test_system_errors_open_a_breaker_of_the_kinds_own() -> None:
    app = Windlass("memory://")
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job
    async def charge() -> None:
        raise Down

    @app.job
    async def mail(*, fail: bool) -> None:
        if fail:
            raise ValueError("no system error")

    with travel(app, concurrency=1) as t:
        app.enqueue_many(mail.using(max_retries=0).draft(fail=True) for _ in range(9))
        app.enqueue_many(charge.draft() for _ in range(12))
        mail.enqueue(fail=False)
        t.run_due()
        (status,) = app.control.breakers()
        assert (status.name, status.state) == ("kind:charge", BreakerState.OPEN)
        assert status.kinds == ("charge",)
        t.assert_completed(mail, count=1)
        t.assert_dead(mail, count=9)
        assert {job.failures for job in t.jobs(charge)} == {0}
        assert len(t.jobs(charge, State.PENDING)) == 12 - 5


def test_errors_that_do_not_count_neither_open_nor_close_a_breaker() -> None:
    app = Windlass("memory://")

    @app.job(breaker=Breaker("stripe", failures=1, on=Down), max_retries=0)
    async def charge(*, down: bool) -> None:
        raise Down if down else ValueError

    with travel(app) as t:
        app.enqueue_many(charge.draft(down=False) for _ in range(3))
        t.run_due()
        t.assert_dead(charge, count=3)
        assert asyncio.run(status_of(app)).state is BreakerState.CLOSED
        charge.enqueue(down=True)
        t.run_due()
        assert asyncio.run(status_of(app)).state is BreakerState.OPEN


@on_embedded_stores
def test_a_timeout_counts_as_a_failure(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe", failures=1), timeout="50ms", max_retries=0)
    async def hang() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with serving(app):
            await hang.aenqueue()
            assert "TimeoutError in job" in (await becomes(app, BreakerState.OPEN)).why

    asyncio.run(main())


def test_a_success_between_them_makes_failures_no_row() -> None:
    app = Windlass("memory://")

    @app.job(breaker=Breaker("stripe", failures=2), max_retries=0)
    async def charge(*, down: bool) -> None:
        if down:
            raise Down

    with travel(app, concurrency=1) as t:
        app.enqueue_many(charge.draft(down=down) for _ in range(3) for down in (True, False))
        t.run_due()
        t.assert_dead(charge, count=3)
        t.assert_completed(charge, count=3)
        assert asyncio.run(status_of(app)).changes == 0
        app.enqueue_many(charge.draft(down=True) for _ in range(2))
        t.run_due()
        assert asyncio.run(status_of(app)).state is BreakerState.OPEN


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
def test_a_kind_that_sees_an_error_in_its_own_way_needs_no_breaker_for_it(bed: Bed) -> None:
    """Prevents: every kind of an app looks at breakers, for an error that is none to it."""
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(errors={Exception: ErrorClass.TRANSIENT})
    async def charge() -> None:
        pass

    @app.job(errors={Down: lambda _error: None})
    async def refund() -> None:
        pass

    @app.job(errors={ValueError: ErrorClass.PERMANENT})
    async def check() -> None:
        pass

    assert set(app.registry.rules()) == {"refund", "check"}


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


ISOLATED = """
from windlass import Breaker, Windlass

app = Windlass()


class Down(Exception):
    pass


class FarDown(Down):
    pass


@app.job(isolate=True, max_retries=0, breaker=Breaker("stripe", failures=1, on=Down))
async def charge(down: bool):
    raise FarDown if down else ValueError
"""


@pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
def test_failures_of_isolated_jobs_count_for_the_breaker(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception itself cannot leave its process, so that is where it is looked at."""
    (bed.directory / "isolated_shop.py").write_text(ISOLATED)
    monkeypatch.syspath_prepend(bed.directory)
    shop = importlib.import_module("isolated_shop")
    monkeypatch.setitem(sys.modules, "isolated_shop", shop)
    shop.app.configure(url=bed.url)

    async def main() -> None:
        async with serving(shop.app):
            await in_state(await shop.charge.aenqueue(down=False), State.DEAD, within=30)
            assert (await status_of(shop.app)).state is BreakerState.CLOSED
            await shop.charge.aenqueue(down=True)
            assert "FarDown in job" in (await becomes(shop.app, BreakerState.OPEN)).why
        await shop.app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_a_probe_that_says_nothing_about_the_gateway_is_followed_by_another(bed: Bed) -> None:
    app, gateway = bed.app(), Gateway()
    gateway.up = True

    @app.job(breaker=Breaker("stripe"))
    async def charge(*, moot: bool) -> object:
        if moot:
            return Cancel("moot")
        await gateway.call()
        return None

    async def main() -> None:
        await put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN))
        handles = [await charge.aenqueue(moot=True) for _ in range(5)]
        async with serving(app):
            for handle in handles:
                await in_state(handle, State.CANCELLED)
            assert (await status_of(app)).state is BreakerState.HALF_OPEN
            await charge.aenqueue(moot=False)
            await becomes(app, BreakerState.CLOSED)

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_unused_probes_are_given_back(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe", probes=3))
    async def charge() -> None:
        pass

    async def main() -> None:
        await put(app, BreakerStatus(name="stripe", state=BreakerState.HALF_OPEN))
        async with serving(app):
            await in_state(await charge.aenqueue(), State.COMPLETED)

            async def is_free() -> bool:
                status = await status_of(app)
                return status.successes == 1 and status.probes == {}

            await until(is_free)
            assert (await status_of(app)).state is BreakerState.HALF_OPEN

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


# -- what is wrong is said -------------------------------------------------------------------------


@on_embedded_stores
def test_a_name_that_nobody_defined_keeps_a_worker_from_starting(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        pass

    @app.job(breaker="strip")
    async def refund() -> None:
        pass

    async def main() -> None:
        with pytest.raises(
            ConfigError, match="'strip', which is not defined; known breakers: stripe"
        ):
            await asyncio.wait_for(app.arun_worker(**QUICK), 60)

    asyncio.run(main())


@on_embedded_stores
def test_two_definitions_of_one_breaker_are_refused_at_once(bed: Bed) -> None:
    app = bed.app()
    shared = Breaker("stripe")

    @app.job(breaker=shared)
    async def charge() -> None:
        pass

    @app.job(breaker=shared)
    async def refund() -> None:
        pass

    @app.job(breaker=Breaker("stripe", cooldown="1m"))
    async def check() -> None:
        pass

    with pytest.raises(ConfigError, match="'stripe' is defined twice, and differently"):

        @app.job(breaker=Breaker("stripe", failures=6))
        async def other() -> None:
            pass

    wrong: Any = 5
    with pytest.raises(ConfigError, match="must be a Breaker or the name of one, got 5"):

        @app.job(breaker=wrong)
        async def another() -> None:
            pass

    assert "other" not in app.registry
    assert "another" not in app.registry


@on_embedded_stores
def test_a_breaker_that_does_not_exist_cannot_be_forced(bed: Bed) -> None:
    app = bed.app()
    app.classify(ErrorClass.SYSTEM, Down)

    @app.job(breaker=Breaker("stripe"))
    async def charge() -> None:
        pass

    @app.job
    async def mail() -> None:
        pass

    async def main() -> None:
        with pytest.raises(ConfigError, match="no breaker 'strip'; known breakers: stripe"):
            await app.control.aopen_breaker("strip")
        assert (await app.control.aopen_breaker("kind:mail")).state is BreakerState.OPEN
        assert [each.name for each in await app.control.abreakers()] == ["kind:mail", "stripe"]

    asyncio.run(main())


def test_a_success_counts_while_a_failure_is_being_recorded() -> None:
    """Else it was forgotten, and the next failure made a row of two where there was none."""
    watch = BreakerView(Rule(name="stripe", failures=2), ["charge"])
    watch.learn(BreakerStatus(name="stripe"), "w")
    assert watch.failed("Down", probe=False)
    told = watch.take_news("w", 0.0)
    assert watch.succeeded(probe=False)
    watch.reported(told)
    watch.learn(BreakerStatus(name="stripe", failures=1), "w")
    assert watch.is_closed
    assert [type(event) for event in watch.events] == [Success]


def test_a_success_counts_before_anybody_has_looked() -> None:
    watch = BreakerView(Rule(name="stripe", failures=2), ["charge"])
    assert watch.failed("Down", probe=False)
    assert watch.succeeded(probe=False)
    assert [type(event) for event in watch.events] == [Failure, Success]
