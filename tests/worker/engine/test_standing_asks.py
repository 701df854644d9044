"""An idle worker leaves a standing ask, unless a policy has a say in what it may start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.app_on_store import Bed, Through, in_state, serving, until
from windlass import Breaker, State, Windlass
from windlass.core.claims.lanes import StandingAsk
from windlass.core.claims.room import Room
from windlass.worker import Worker

pytestmark = pytest.mark.parametrize("bed", ["redis"], indirect=True)


class Claims(Through):
    """Counts the claims that were sent to the store."""

    sent = 0

    async def claim(self, *arguments: Any, **named: Any) -> Any:
        self.sent += 1
        return await self.inner.claim(*arguments, **named)


def asked(worker: Worker) -> StandingAsk | None:
    return worker._parts.engine.claimer._standing_ask()


def left(app: Windlass) -> StandingAsk | None:
    """Return the ask that is in the store."""
    store: Any = app.store
    ask: StandingAsk | None = getattr(store, "inner", store)._here()._ask
    return ask


def test_a_job_for_an_idle_worker_needs_no_claim(bed: Bed) -> None:
    claims = Claims(bed.store())
    app = bed.app(store=claims)

    @app.job
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def main() -> None:
        async with serving(app, poll_interval="1m"):
            await until(lambda: left(app) is not None)
            claims.sent = 0
            for name in ("ada", "grace"):
                handle = await greet.aenqueue(name)
                job = await in_state(handle, State.COMPLETED)
                assert (job.attempt, await handle.aresult()) == (1, f"hello {name}")
                await until(lambda: left(app) is not None)
            assert claims.sent == 0

    asyncio.run(main())


def test_no_ask_is_left_while_a_job_runs(bed: Bed) -> None:
    """A handler may block the event loop, and a job that is brought could not start."""
    app = bed.app()
    go = asyncio.Event()

    @app.job
    async def hold() -> None:
        await go.wait()

    async def main() -> None:
        async with serving(app, poll_interval="1m") as worker:
            await until(lambda: left(app) is not None)
            first = await hold.aenqueue()
            await in_state(first, State.RUNNING)
            assert asked(worker) is None
            second = await hold.aenqueue()
            await in_state(second, State.RUNNING)
            go.set()
            for handle in (first, second):
                await in_state(handle, State.COMPLETED)
            await until(lambda: left(app) is not None)

    asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 1},
        {"rate": "1000/s"},
        {"fair_by": "tenant"},
        {"key": "tenant", "ordered": True},
    ],
    ids=["concurrency", "rate", "turns", "order"],
)
def test_kinds_under_a_policy_are_not_asked_for(bed: Bed, options: dict[str, Any]) -> None:
    app = bed.app()

    @app.job(**options)  # type: ignore[untyped-decorator]
    async def bounded(tenant: str) -> None: ...

    @app.job
    async def free() -> None: ...

    async def main() -> None:
        async with serving(app) as worker:
            ask = asked(worker)
            assert ask is not None
            assert "free" in ask.kinds
            assert "bounded" not in ask.kinds
            handle = await bounded.aenqueue("ada")
            await in_state(handle, State.COMPLETED)

    asyncio.run(main())


def test_no_ask_is_left_where_a_queue_has_a_limit(bed: Bed) -> None:
    app = bed.app()
    app.limit(queue="mail", concurrency=1)

    @app.job
    async def free() -> None: ...

    async def main() -> None:
        async with serving(app) as worker:
            assert asked(worker) is None

    asyncio.run(main())


def test_no_ask_is_left_while_something_is_paused(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def free() -> None: ...

    async def main() -> None:
        async with serving(app) as worker:
            await until(lambda: left(app) is not None)
            await app.control.apause("other")
            await until(lambda: asked(worker) is None)
            await until(lambda: left(app) is None)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("room", "kinds"),
    [
        (Room(slots=0, threads=1, isolated_processes=1), None),
        (Room(slots=1, threads=1, isolated_processes=1, queues={"mail": 0}), None),
        (Room(slots=1, threads=0, isolated_processes=1), {"free"}),
        (Room(slots=1, threads=1, isolated_processes=1, queues={"mail": 1}), {"free", "blocking"}),
    ],
    ids=["slots", "queue", "threads", "all"],
)
def test_no_job_is_asked_for_that_could_not_start(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, room: Room, kinds: set[str] | None
) -> None:
    """Prevents: jobs that are claimed and given back, again and again, while none can start."""
    app = bed.app()

    @app.job
    async def free() -> None: ...

    @app.job
    def blocking() -> None: ...

    async def main() -> None:
        async with serving(app) as worker:
            monkeypatch.setattr(worker._parts.engine, "room", lambda: room)
            ask = asked(worker)
            assert (None if ask is None else kinds_of(ask)) == kinds
            monkeypatch.undo()

    def kinds_of(ask: StandingAsk) -> set[str]:
        return {"free", "blocking"} & set(ask.kinds)

    asyncio.run(main())


def test_a_kind_whose_breaker_is_open_is_not_asked_for(bed: Bed) -> None:
    app = bed.app()

    @app.job(breaker=Breaker("stripe"))
    async def call() -> None: ...

    async def main() -> None:
        async with serving(app) as worker:
            await until(lambda: "call" in (asked(worker) or ask_of("")).kinds)
            await app.control.aopen_breaker("stripe")
            await until(lambda: "call" not in (asked(worker) or ask_of("call")).kinds)

    asyncio.run(main())


def ask_of(*kinds: str) -> StandingAsk:
    return StandingAsk(worker="", token=0, kinds=kinds, take=lambda _: None)


def test_a_job_that_may_not_start_any_more_is_given_back_uncharged(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause may reach the worker after its ask has reached the store."""
    app = bed.app()

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        async with serving(app, poll_interval="1m") as worker:
            await until(lambda: left(app) is not None)
            claimer = worker._parts.engine.claimer
            with monkeypatch.context() as patch:
                patch.setattr(claimer, "_may_start", lambda _: False)
                handle = await work.aenqueue()
                await until(lambda: left(app) is None)
            job = await in_state(handle, State.COMPLETED)
            assert (job.attempt, job.failures, job.history) == (2, 0, ())

    asyncio.run(main())


def test_a_worker_with_asks_has_a_handful_of_connections(bed: Bed) -> None:
    """As docs/redis.md says: three, and those of the pool."""
    app = bed.app()

    @app.job
    async def work() -> None: ...

    def connected() -> set[bytes]:
        assert bed.redis is not None
        lines = bed.redis.call("CLIENT", "LIST").splitlines()
        return {line.split()[0] for line in lines}

    async def main() -> None:
        before = connected()
        async with serving(app, poll_interval="1m"):
            for _ in range(20):
                await until(lambda: left(app) is not None)
                await in_state(await work.aenqueue(), State.COMPLETED)
            pool = app.store.connections
            assert pool is not None
            ours = connected() - before
            assert len(ours) <= 3 + pool.open + 1, "the last is this test's own"
            assert pool.open <= 20

    asyncio.run(main())
