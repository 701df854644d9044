"""Whoever asks for a provided value in a worker is given it: handlers, hooks, middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, NewType

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
    Callbacks,
    CallNext,
    ConfigError,
    Context,
    Inject,
    Kind,
    PayloadInvalid,
    ProviderError,
    State,
    StoreUnavailable,
    SyncContext,
    Windlass,
    current_context,
)
from windlass.core.workers import WorkerInfo

pytestmark = on_embedded_stores


class Pool:
    """A provided value."""

    def __init__(self, name: str = "pool") -> None:
        self.name = name
        self.open = True


class Cache:
    """A provided value that needs another."""

    def __init__(self, pool: Pool) -> None:
        self.name = f"cache on {pool.name}"


Replica = NewType("Replica", Pool)


@dataclass
class Order:
    """A payload."""

    number: int


@dataclass
class Sync:
    """A job as a class."""

    number: int

    async def execute(self, ctx: Context, db: Pool = Inject) -> str:
        return f"{self.number} {db.name} {ctx.kind}"


@dataclass
class SyncInThread:
    """A job as a class, with a method that runs in a thread and takes no context."""

    number: int

    def execute(self, db: Pool = Inject) -> str:
        return f"{self.number} {db.name}"


@dataclass
class Injected:
    """No job, since its fields are its payload."""

    db: Pool = Inject

    def execute(self, ctx: SyncContext) -> None: ...


ORDER = Kind("order", Order)


def with_pool(app: Windlass, lines: list[str] | None = None) -> Windlass:
    """Let an app have a pool, which writes down when it is opened and closed."""
    heard = [] if lines is None else lines

    @app.provide
    async def pool() -> AsyncIterator[Pool]:
        heard.append("open")
        pool = Pool()
        yield pool
        pool.open = False
        heard.append("close")

    return app


def run(app: Windlass, handler: Any, *args: Any, **kwargs: Any) -> Any:
    """Let a worker run one job, and return its result."""

    async def main() -> Any:
        async with serving(app):
            return await (await handler.aenqueue(*args, **kwargs)).aresult("60s")

    return asyncio.run(main())


def test_a_handler_is_given_the_provided_value_of_the_annotated_type(bed: Bed) -> None:
    app = bed.app()

    @app.job  # Before its provider is: the order does not matter.
    async def sync(order: int, db: Pool = Inject, note: str = "-") -> str:
        return f"{order} {db.name} {db.open} {note}"

    with_pool(app)
    assert run(app, sync, 1) == "1 pool True -"
    assert run(app, sync, order=1, note="x") == "1 pool True x"


def test_a_handler_in_a_thread_is_given_it(bed: Bed) -> None:
    app = with_pool(bed.app())

    @app.job
    def sync(ctx: SyncContext, order: int, *, db: Pool = Inject) -> str:
        return f"{order} {db.name} {ctx.kind} {ctx.provided[Pool] is db}"

    assert run(app, sync, 1) == "1 pool sync True"


def test_a_class_is_given_it_by_execute(bed: Bed) -> None:
    app = with_pool(bed.app())
    job: Any = app.job
    assert run(app, job(Sync), number=1) == "1 pool Sync"
    assert run(app, job(SyncInThread), number=1) == "1 pool"


def test_the_handler_of_a_kind_is_given_it(bed: Bed) -> None:
    app = with_pool(bed.app())

    @app.job(ORDER)
    async def take(ctx: Context, order: Order, db: Pool = Inject) -> str:
        return f"{order.number} {db.name}"

    assert run(app, app.producer(ORDER), Order(1)) == "1 pool"
    assert asyncio.run(_direct(take)) == "2 fake"


async def _direct(take: Any) -> Any:
    return await take(None, Order(2), db=Pool("fake"))


def test_two_provided_values_of_one_type_are_distinguished_by_a_new_type(bed: Bed) -> None:
    app = with_pool(bed.app())

    @app.provide
    def replica() -> Replica:
        return Replica(Pool("replica"))

    @app.job
    async def both(a: Pool = Inject, b: Replica = Inject) -> list[str]:
        return [a.name, b.name, current_context().provided[Replica].name]

    assert run(app, both) == ["pool", "replica", "replica"]


def test_a_provided_value_is_no_part_of_the_payload(bed: Bed) -> None:
    app = with_pool(bed.app())

    @app.job
    async def sync(order: int, db: Pool = Inject, note: str = "") -> None: ...

    async def main() -> None:
        handle = await sync.aenqueue(order=1)
        assert (await handle.ainfo()).payload == b'{"order":1}'
        for args, kwargs in [((1,), {"db": Pool()}), ((1, Pool()), {}), ((1, None, "x"), {})]:
            with pytest.raises(
                PayloadInvalid, match="worker injects this value; leave it out"
            ) as no:
                await sync.aenqueue(*args, **kwargs)  # type: ignore[arg-type]
            assert no.value.field == "db"

    asyncio.run(main())


def test_a_payload_that_brings_its_own_is_dead(bed: Bed) -> None:
    """Prevents: somebody who may only write rows gives a handler something else than its pool."""
    app = with_pool(bed.app())

    @app.job(name="theirs")
    async def without(order: int, db: str) -> None: ...

    other = Windlass()
    with_pool(other).store = app.store

    @other.job(name="theirs")
    async def sync(order: int, db: Pool = Inject) -> None: ...

    async def main() -> None:
        handle = await without.aenqueue(1, "mine")
        async with serving(other):
            job = await in_state(handle, State.DEAD)
        assert job.error is not None
        assert "db" in job.error.message

    asyncio.run(main())


def test_a_decorated_function_is_called_directly_with_what_a_test_gives(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def sync(order: int, db: Pool = Inject) -> str:
        return f"{order} {db.name}"

    assert asyncio.run(sync(1, db=Pool("fake"))) == "1 fake"  # type: ignore[arg-type]


def test_arguments_are_shown_to_middleware_without_provided_values(bed: Bed) -> None:
    seen: list[Any] = []

    async def look(ctx: Context, call_next: CallNext) -> Any:
        seen.extend([dict(ctx.arguments), ctx.provided[Pool].name])
        return await call_next()

    app = with_pool(bed.app(middleware=[look]))

    @app.job
    async def sync(order: int, db: Pool = Inject) -> None: ...

    run(app, sync, 1)
    assert seen == [{"order": 1}, "pool"]


def test_hooks_and_middleware_may_ask_as_handlers_do(bed: Bed) -> None:
    heard: list[str] = []

    async def layer(ctx: Context, call_next: CallNext, db: Pool = Inject) -> Any:
        heard.append(f"middleware {db.name}")
        return await call_next()

    def told_off(ctx: Context, error: BaseException, db: Pool = Inject) -> None:
        heard.append(f"failed {db.name}")

    app = with_pool(bed.app(middleware=[layer]))

    @app.on_start
    async def start(db: Pool = Inject) -> None:
        heard.append(f"start {db.name}")

    @app.on_shutdown
    def shutdown(db: Pool = Inject) -> None:
        heard.append(f"shutdown {db.name} {db.open}")

    @app.on_job_start
    def job_start(ctx: Context, db: Pool = Inject) -> None:
        heard.append(f"job start {db.name}")

    @app.on_job_complete
    async def job_complete(ctx: Context, result: Any, *, db: Pool = Inject) -> None:
        heard.append(f"job complete {db.name}")

    @app.job(max_retries=0, middleware=[Callbacks(failed=told_off)])
    async def work(fail: bool) -> None:
        if fail:
            raise ValueError

    async def main() -> None:
        async with serving(app):
            await (await work.aenqueue(False)).aresult("60s")
            await in_state(await work.aenqueue(True), State.DEAD)

    asyncio.run(main())
    assert heard == [
        "start pool",
        "middleware pool",
        "job start pool",
        "job complete pool",
        "middleware pool",
        "job start pool",
        "failed pool",
        "shutdown pool True",
    ]


def _handler(app: Windlass) -> str:
    @app.job
    async def sync(order: int, db: Pool = Inject) -> None: ...

    return "the handler of 'sync' asks for `db: Pool`"


def _start(app: Windlass) -> str:
    @app.on_start
    def start(db: Pool = Inject) -> None: ...

    return r"the hook .*start asks for `db: Pool`"


def _shutdown(app: Windlass) -> str:
    @app.on_shutdown
    def end(db: Pool = Inject) -> None: ...

    return r"the hook .*end asks for `db: Pool`"


def _child_start(app: Windlass) -> str:
    @app.on_child_start
    def begin(db: Pool = Inject) -> None: ...

    return r"the hook .*begin asks for `db: Pool`"


def _callback(app: Windlass) -> str:
    @app.on_job_error
    def failed(ctx: Context, error: BaseException, db: Pool = Inject) -> None: ...

    return r"the hook .*failed asks for `db: Pool`"


def _middleware(app: Windlass) -> str:
    async def layer(ctx: Context, call_next: CallNext, db: Pool = Inject) -> Any: ...

    @app.job(middleware=[layer])
    async def work() -> None: ...

    return r"the middleware .*layer asks for `db: Pool`"


@pytest.mark.parametrize(
    "asking", [_handler, _start, _shutdown, _child_start, _callback, _middleware]
)
def test_a_worker_does_not_start_if_somebody_asks_for_what_is_not_there(
    bed: Bed, asking: Callable[[Windlass], str]
) -> None:
    app = bed.app()
    heard: list[str] = []
    expected = asking(app)

    @app.provide
    def number() -> int:
        heard.append("opened")
        return 5

    async def main() -> None:
        with pytest.raises(ConfigError, match=rf"{expected}, but no provider .*: number \(int\);"):
            await asyncio.wait_for(app.arun_worker(), 60)
        assert await app.store.workers() == []

    asyncio.run(main())
    assert heard == []


def test_provided_values_are_open_from_before_the_first_hook_until_after_the_last(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    @app.provide
    def cache(pool: Pool = Inject) -> Iterator[Cache]:
        heard.append("open cache")
        yield Cache(pool)
        heard.append("close cache")

    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))
    began = asyncio.Event()

    @app.job
    async def work(cache: Cache = Inject) -> str:
        began.set()
        await asyncio.sleep(0.05)
        heard.append("work")
        return cache.name

    async def main() -> None:
        async with serving(app):
            handle = await work.aenqueue()
            await began.wait()
        assert await handle.astate() is State.COMPLETED  # It was drained.

    asyncio.run(main())
    assert heard == [
        "open", "open cache", "start", "work", "shutdown", "close cache", "close",
    ]  # fmt: skip


def test_provided_values_are_opened_once_for_all_jobs(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)
    given: list[Pool] = []

    @app.job
    async def work(db: Pool = Inject) -> None:
        given.append(db)

    async def main() -> None:
        async with serving(app):
            for _ in range(3):
                await (await work.aenqueue()).aresult("60s")

    asyncio.run(main())
    assert heard == ["open", "close"]
    assert len(given) == 3
    assert len(set(map(id, given))) == 1


def test_a_provided_value_that_cannot_be_opened_keeps_the_worker_from_starting(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)
    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))

    @app.provide
    async def cache() -> Cache:
        raise OSError("no route")

    async def main() -> None:
        with pytest.raises(ProviderError, match="'cache' could not be opened: OSError: no route"):
            await app.arun_worker()
        assert await app.store.workers() == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert heard == ["open", "close"]


def test_a_failing_start_hook_closes_what_was_opened(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    @app.on_start
    async def refuse() -> None:
        raise RuntimeError("no licence")

    app.on_shutdown(lambda: heard.append("shutdown"))

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no licence"):
            await app.arun_worker()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert heard == ["open", "close"]


class Unreachable(Through):
    """A store that cannot be opened."""

    async def open(self) -> None:
        raise StoreUnavailable("nobody there")


def test_before_there_is_a_store_nothing_is_opened(bed: Bed) -> None:
    """What an app opens is often in the same place, and would fail while the worker waits."""
    heard: list[str] = []
    app = with_pool(bed.app(store=Unreachable(bed.store())), heard)
    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))

    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await app.arun_worker()

    asyncio.run(main())
    assert heard == []


class LostAtOnce(Through):
    """A store that is gone when a worker registers."""

    async def register(self, worker: WorkerInfo) -> None:
        raise StoreUnavailable("nobody there")


def test_a_store_that_takes_no_worker_undoes_the_start(bed: Bed) -> None:
    """Prevents: what on_start opened is never closed, since on_shutdown is not called."""
    heard: list[str] = []
    app = with_pool(bed.app(store=LostAtOnce(bed.store())), heard)
    app.on_start(lambda: heard.append("start"))
    app.on_shutdown(lambda: heard.append("shutdown"))

    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await app.arun_worker()

    asyncio.run(main())
    assert heard == ["open", "start", "shutdown", "close"]


def test_a_close_that_fails_does_not_keep_the_worker_from_ending(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    @app.provide
    def cache(pool: Pool = Inject) -> Iterator[Cache]:
        yield Cache(pool)
        raise ValueError("gone")

    @app.on_shutdown
    def broken() -> None:
        raise ValueError("no")

    async def main() -> None:
        async with serving(app):
            pass
        assert not [worker for worker in await app.store.workers() if worker.alive]

    asyncio.run(main())
    assert heard == ["open", "close"]
    assert [line["provider"] for line in log_lines(caplog, "provider.not_closed")] == ["cache"]
    (line,) = log_lines(caplog, "shutdown.incomplete")
    assert line["error"] == "ValueError: no"
    assert line["hook"].endswith("broken")


def test_a_program_that_just_ends_closes_provided_values_after_the_drain(bed: Bed) -> None:
    """Prevents: `asyncio.run` cancels the value first, and a job that drains finds it closed."""
    heard: list[str] = []
    app = with_pool(bed.app(), heard)
    began = asyncio.Event()

    @app.job
    async def work(db: Pool = Inject) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            heard.append(f"cleaned up, pool open: {db.open}")

    async def main() -> None:
        task = asyncio.create_task(app.arun_worker(poll_interval="20ms", shutdown_timeout="100ms"))
        await work.aenqueue()
        await began.wait()
        assert not task.done()

    asyncio.run(main())
    assert heard == ["open", "cleaned up, pool open: True", "close"]


def test_provided_values_can_be_opened_without_a_worker(bed: Bed) -> None:
    heard: list[str] = []
    app = with_pool(bed.app(), heard)

    async def main() -> None:
        async with app.open_provided() as provided:
            assert provided[Pool].open

    asyncio.run(main())
    assert heard == ["open", "close"]


def test_a_field_of_a_class_cannot_be_injected(bed: Bed) -> None:
    app = bed.app()
    job: Any = app.job
    with pytest.raises(ConfigError, match=r"field 'db' of Injected.*execute\(self, ctx: Context,"):
        job(Injected)


def test_a_hook_may_return_anything(bed: Bed) -> None:
    """Prevents: `app.on_start(lambda: cache.clear())`, which returns a number, is awaited."""
    app = bed.app()
    heard: list[str] = []

    def hook() -> Any:
        heard.append("called")
        return 5

    app.on_start(hook)
    app.on_shutdown(hook)

    async def main() -> None:
        async with serving(app):
            pass

    asyncio.run(main())
    assert heard == ["called", "called"]
