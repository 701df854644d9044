"""`@app.job` takes functions and classes as they are, and refuses what could not be run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import pytest

from tests.support.app_on_store import Bed, in_state, on_embedded_stores, serving
from windlass import ConfigError, Context, Retry, State, SyncContext

pytestmark = on_embedded_stores


@dataclass
class Mail:
    to: str
    copies: int = 1
    max_retries: ClassVar[int] = 7

    async def execute(self, ctx: Context) -> str:
        return f"{self.to} x{self.copies} by {ctx.kind}"


class Report(msgspec.Struct):
    day: str
    tags: list[str]
    max_retries: ClassVar[int] = 6

    def execute(self, ctx: SyncContext) -> str:
        return f"{self.day} {self.tags} in attempt {ctx.attempt}"


class Plain:
    max_retries = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def execute(self) -> int:
        if self.number < 0:
            raise ValueError("negative")
        return self.number * 2


class Empty:
    async def execute(self, ctx: Context) -> str:
        return ctx.kind


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)

    def execute(self, ctx: SyncContext) -> list[str]:
        return [*self.items, "bag"]


class Crate(msgspec.Struct):
    items: list[str] = msgspec.field(default_factory=lambda: ["straw"])
    marks: list[str] = []

    def execute(self, ctx: SyncContext) -> list[str]:
        return [*self.items, *self.marks, "lid"]


class Greedy:
    def execute(self, ctx: SyncContext, more: str) -> None: ...


class Nameless:
    def execute(self, ctx) -> None: ...  # type: ignore[no-untyped-def]


def test_an_async_function_is_a_job(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def greet(name: str, *, loud: bool = False) -> str:
        return name.upper() if loud else name

    async def main() -> None:
        async with serving(app):
            assert await (await greet.aenqueue("anna")).aresult("60s") == "anna"
            assert await (await greet.aenqueue("anna", loud=True)).aresult("60s") == "ANNA"

    asyncio.run(main())


def test_a_sync_function_is_a_job(bed: Bed) -> None:
    app = bed.app()

    @app.job(queue="sums")
    def add(a: int, b: int = 1) -> int:
        return a + b

    async def main() -> None:
        async with serving(app):
            handle = await add.aenqueue(2)
            assert await handle.aresult("60s") == 3
            assert (await handle.ainfo()).queue == "sums"

    asyncio.run(main())


def test_a_context_may_be_asked_for_under_any_name(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def first(context: Context, x: int) -> str:
        return f"{context.kind} {x}"

    @app.job
    def last(x: int, c: SyncContext) -> str:
        return f"{c.kind} {x}"

    async def main() -> None:
        async with serving(app):
            assert await (await first.aenqueue(1)).aresult("60s") == "first 1"
            untyped: Any = last
            assert await (await untyped.aenqueue(2)).aresult("60s") == "last 2"

    asyncio.run(main())


def test_a_class_with_execute_is_a_job_whose_fields_are_the_payload(bed: Bed) -> None:
    app = bed.app()
    mail, report = app.job(Mail), app.job(Report)
    plain: Any = app.job(Plain)
    empty = app.job(Empty)

    async def main() -> None:
        async with serving(app):
            sent = await mail.aenqueue("anna", copies=2)
            assert await sent.aresult("60s") == "anna x2 by Mail"
            written = await report.aenqueue("monday", tags=["a"])
            assert await written.aresult("60s") == "monday ['a'] in attempt 1"
            assert await (await plain.aenqueue(number=4)).aresult("60s") == 8
            assert await (await empty.aenqueue()).aresult("60s") == "Empty"

    asyncio.run(main())


def test_a_class_whose_fields_have_default_factories_gets_what_they_make(bed: Bed) -> None:
    app = bed.app()
    basket, crate = app.job(max_retries=0)(Basket), app.job(max_retries=0)(Crate)

    async def main() -> None:
        async with serving(app):
            assert await (await basket.aenqueue()).aresult("60s") == ["bag"]
            assert await (await crate.aenqueue()).aresult("60s") == ["straw", "lid"]

    asyncio.run(main())


def test_a_class_says_itself_how_often_it_is_retried(bed: Bed) -> None:
    app = bed.app()
    app.job(Mail)
    app.job(Report)
    plain = app.job(Plain)
    app.job(name="louder", max_retries=1)(Mail)
    assert app.registry["Mail"].retry.max_retries == 7
    assert app.registry["Report"].retry.max_retries == 6
    assert app.registry["louder"].retry.max_retries == 1

    async def main() -> None:
        async with serving(app):
            job = await in_state(await plain.aenqueue(-1), State.DEAD)
            assert job.failures == 1

    asyncio.run(main())


@dataclass
class Letter:
    to: str
    max_retries: int = 2
    timeout: float | None = None

    def execute(self) -> None:
        raise ValueError("no")


class Parcel:
    queue = "parcels"
    timeout = "90s"
    priority = 7
    retry = Retry(max_retries=4, initial="2s")

    def execute(self) -> None: ...


def test_the_fields_of_a_class_are_options_of_each_job(bed: Bed) -> None:
    app = bed.app()
    letter = app.job(Letter)
    assert app.registry["Letter"].retry.max_retries == 2

    async def main() -> None:
        own = await letter.aenqueue("a", max_retries=0, timeout=5)
        assert (await own.ainfo()).timeout == timedelta(seconds=5)
        asked = await letter.using(max_retries=0).aenqueue("c", max_retries=9)
        async with serving(app):
            assert (await in_state(own, State.DEAD)).failures == 1
            assert (await in_state(asked, State.DEAD)).failures == 1

    asyncio.run(main())
    with pytest.raises(ValueError, match="max_retries must be a whole number"):
        letter.draft("a", max_retries=-1)


def test_the_attributes_of_a_class_are_options_of_all_its_jobs(bed: Bed) -> None:
    app = bed.app()
    job = app.job(Parcel).draft().job
    assert (job.queue, job.priority) == ("parcels", 7)
    registered = app.registry["Parcel"]
    assert registered.timeout == timedelta(seconds=90)
    assert registered.retry == Retry(max_retries=4, initial="2s")
    louder = app.job(name="louder", queue="fast", max_retries=1)(Parcel)
    assert louder.draft().job.queue == "fast"
    assert app.registry["louder"].retry == Retry(max_retries=1)


def test_a_class_inherits_how_often_it_is_retried(bed: Bed) -> None:
    @dataclass
    class Special(Mail):
        async def execute(self, ctx: Context) -> str:
            return "special"

    app = bed.app()
    app.job(Special)
    assert app.registry["Special"].retry.max_retries == 7


def test_a_class_without_execute_is_refused(bed: Bed) -> None:
    class Idle:
        pass

    job: Any = bed.app().job
    with pytest.raises(ConfigError, match="execute"):
        job(Idle)


@pytest.mark.parametrize("cls", [Greedy, Nameless])
def test_an_execute_with_parameters_that_nobody_can_fill_is_refused(bed: Bed, cls: Any) -> None:
    job: Any = bed.app().job
    with pytest.raises(ConfigError, match=r"more|ctx"):
        job(cls)


def test_the_decorated_function_stays_callable_and_known(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"hello {name}"

    @app.job(name="sums.double")
    def double(n: int) -> int:
        return n * 2

    assert asyncio.run(_awaited(greet("anna"))) == "hello anna"
    assert double(4) == 8
    made = app.job(Mail)("bert", copies=3)
    assert (made.to, made.copies) == ("bert", 3)  # type: ignore[attr-defined]
    assert (greet.__name__, greet.__doc__) == ("greet", "Greet somebody.")  # type: ignore[attr-defined]
    assert repr(double) == "Handler('sums.double')"


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def test_jobs_of_an_old_name_are_run_by_the_handler_with_that_alias(bed: Bed) -> None:
    store = bed.store()
    before, after = bed.app(store=store), bed.app(store=store)

    @before.job(name="mail")
    async def old(to: str) -> str:
        return f"old {to}"

    @after.job(name="mail.send", aliases=["mail", "post"])
    async def new(to: str) -> str:
        return f"new {to}"

    async def main() -> None:
        waiting = await old.aenqueue("anna")
        async with serving(after):
            assert await waiting.aresult("60s") == "new anna"
            assert await (await new.aenqueue("bert")).aresult("60s") == "new bert"

    asyncio.run(main())
