"""Whoever asks for a provided value in a worker is given it: handlers, hooks, middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NewType

import pytest

from tests.handlers.provided.pools import Pool, with_pool
from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from windlass import (
    Callbacks,
    CallNext,
    ConfigError,
    Context,
    Inject,
    Kind,
    PayloadInvalid,
    State,
    SyncContext,
    Windlass,
    current_context,
)

pytestmark = on_embedded_stores
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
