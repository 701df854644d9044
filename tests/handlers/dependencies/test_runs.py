"""Each run opens its dependencies, hands them to its handler, and closes them whatever happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tests.handlers.dependencies.sessions import (
    Session,
    get_blocking_session,
    get_session,
    get_url,
    get_user,
    heard,
    run,
)
from tests.handlers.provided.pools import Pool, with_pool
from tests.support.app_on_store import Bed, on_embedded_stores, serving, until
from windlass import Context, Inject, Kind, State, SyncContext
from windlass.app.local_runs.local_run import run_here
from windlass.core.jobs.outcomes import Succeeded
from windlass.testing import travel

pytestmark = on_embedded_stores


@pytest.mark.parametrize("form", ["default", "annotated", "both"])
def test_an_async_handler_is_given_its_dependencies_and_they_are_closed_after_it(
    bed: Bed, form: str
) -> None:
    app = bed.app()

    async def by_default(order: int, session: Session = Inject(get_session)) -> str:
        heard.append("run")
        return f"{order} {session.name}"

    async def by_annotation(order: int, session: Annotated[Session, Inject(get_session)]) -> str:
        return await by_default(order, session)

    async def by_both(order: int, session: Annotated[Session, Inject(get_session)] = Inject) -> str:
        return await by_default(order, session)

    handlers: dict[str, Callable[..., Any]]
    handlers = {"default": by_default, "annotated": by_annotation, "both": by_both}
    assert run(app, app.job(handlers[form]), 7) == "7 session of db"
    assert heard == ["url", "open", "run", "commit", "close"]


def test_a_handler_in_a_thread_is_given_async_and_blocking_dependencies(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def send(
        ctx: SyncContext,
        order: int,
        user: str = Inject(get_user),
        session: Session = Inject(get_blocking_session),
    ) -> list[object]:
        heard.append("run")
        return [order, ctx.kind, user, session.name, session.thread == threading.get_ident()]

    assert run(app, send, 7) == [7, "send", "user in session of db", "session of db", True]
    # The url is shared; what the event loop opened is around what the thread opened.
    order = ["url", "open", "open", "run", "commit", "close", "commit", "close"]
    assert heard == order


def test_blocking_dependencies_of_an_async_handler_leave_the_event_loop_alone(bed: Bed) -> None:
    app, entered, seen = bed.app(), threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        entered.set()
        assert seen.wait(60)  # Only the event loop can set it.
        yield threading.get_ident()

    @app.job
    async def send(thread: int = Inject(slow)) -> bool:
        return thread != threading.get_ident()

    async def main() -> Any:
        async with serving(app):
            handle = await send.aenqueue()
            await until(entered.is_set)
            seen.set()
            return await handle.aresult("60s")

    assert asyncio.run(main()) is True


@pytest.mark.parametrize("is_async", [True, False])
def test_a_blocking_dependency_may_take_back_a_variable_that_it_has_set(
    bed: Bed, *, is_async: bool
) -> None:
    app = bed.app()
    tenant: ContextVar[str] = ContextVar("tenant", default="none")

    def get_tenant() -> Iterator[str]:
        token = tenant.set("acme")
        yield tenant.get()
        tenant.reset(token)

    if is_async:

        @app.job
        async def work(name: str = Inject(get_tenant)) -> str:
            return name
    else:

        @app.job
        def work(name: str = Inject(get_tenant)) -> str:
            return name

    assert run(app, work) == "acme"


def test_a_dependency_is_opened_once_in_a_run_and_anew_in_the_next(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def send(
        user: str = Inject(get_user),
        session: Session = Inject(get_session),
        again: Session = Inject(get_session),
    ) -> bool:
        return session is again

    with travel(app) as t:
        for _ in range(2):
            send.enqueue()
        t.run_due()
        assert [job.state for job in t.jobs()] == [State.COMPLETED] * 2
    assert heard.count("open") == 2
    assert heard.count("url") == 2


def test_every_sort_of_handler_is_given_dependencies(bed: Bed) -> None:
    app = bed.app()
    kind = Kind("order", Order)

    @app.job(kind)
    def take(order: Order, session: Session = Inject(get_session)) -> str:
        return f"{order.number} {session.name}"

    @app.job(batch_size=2)
    async def many(orders: list[Order], session: Session = Inject(get_session)) -> list[str]:
        return [session.name] * len(orders)

    @app.job(batch_size=2)
    def in_thread(
        orders: list[Order], a: str = Inject(get_user), b: Session = Inject(get_blocking_session)
    ) -> list[str]:
        return [f"{a} {b.name}"] * len(orders)

    as_class = app.job(Sync)
    assert run(app, take, Order(7)) == "7 session of db"
    assert run(app, as_class, number=7) == "7 session of db Sync"
    heard.clear()
    assert run(app, many, Order(7)) == "session of db"
    assert heard == ["url", "open", "commit", "close"]
    assert run(app, in_thread, Order(7)) == "user in session of db session of db"


@dataclass
class Order:
    """A payload."""

    number: int


@dataclass
class Sync:
    """A job as a class."""

    number: int

    async def execute(self, ctx: Context, session: Session = Inject(get_session)) -> str:
        return f"{self.number} {session.name} {ctx.kind}"


def test_a_batch_has_one_of_each_for_all_its_jobs(bed: Bed) -> None:
    app = bed.app()

    @app.job(batch_size=3, batch_timeout="1h")
    async def many(orders: list[int], session: Session = Inject(get_session)) -> None: ...

    with travel(app) as t:
        for number in range(3):
            many.enqueue(number)
        t.run_due()
        assert {job.state for job in t.jobs()} == {State.COMPLETED}
    assert heard == ["url", "open", "commit", "close"]


def test_dependencies_may_ask_for_the_context_and_for_provided_values(bed: Bed) -> None:
    app = with_pool(bed.app())

    async def tenant(ctx: Context, db: Pool = Inject) -> str:
        return f"{ctx.kind} {db.name}"

    def attempt(ctx: SyncContext, db: Pool = Inject) -> str:
        return f"{ctx.attempt} {db.name}"

    @app.job
    async def work(a: str = Inject(tenant), b: str = Inject(attempt), c: Pool = Inject) -> str:
        return f"{a} {b} {c.name}"

    assert run(app, work) == "work pool 1 pool pool"


class Greeter:
    """An object as a dependency."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, url: str = Inject(get_url)) -> str:
        return f"{self.word} {url}"


class Paging:
    """A class as a dependency."""

    def __init__(self, url: str = Inject(get_url), limit: int = 10) -> None:
        self.text = f"{url} {limit}"


def test_classes_and_objects_are_dependencies_and_their_plain_defaults_hold(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work(a: str = Inject(Greeter("hello")), b: Paging = Inject(Paging)) -> str:
        return f"{a} {b.text}"

    assert run(app, work) == "hello db db 10"


def test_a_job_that_runs_in_this_process_has_its_dependencies(bed: Bed) -> None:
    app = bed.app()

    @app.job(isolate=True)
    def work(a: Session = Inject(get_session), b: Session = Inject(get_blocking_session)) -> str:
        return a.name + b.name

    async def main() -> None:
        await app.store.open()
        handle = await work.aenqueue()
        ended = await run_here(app, handle.id)
        assert ended.outcome == Succeeded(result=b'"session of dbsession of db"')
        await app.aclose()

    asyncio.run(main())
    assert heard[-1] == "close"


def test_a_handler_in_a_pipeline_has_its_dependencies(bed: Bed) -> None:
    app = bed.app()

    @app.job
    def first(order: int, session: Session = Inject(get_session)) -> str:
        return f"{order} {session.name}"

    @app.job
    async def second(first: str, user: str = Inject(get_user)) -> str:
        return f"{first}, {user}"

    line = app.pipeline("line", [first, second])
    assert run(app, line, {"order": 7}) == "7 session of db, user in session of db"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_dependency_may_hold_a_task_group_and_a_timeout_open(bed: Bed, *, is_async: bool) -> None:
    app = bed.app()

    async def group() -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
            yield tasks

    async def work(tasks: asyncio.TaskGroup = Inject(group)) -> str:
        return await tasks.create_task(asyncio.sleep(0, "done"))

    def work_in_thread(tasks: asyncio.TaskGroup = Inject(group)) -> str:
        return "done"

    assert run(app, app.job(work if is_async else work_in_thread)) == "done"
