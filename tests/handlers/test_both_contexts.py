"""Two contexts with the same names: `async def` handlers await, `def` handlers just call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.app_on_store import Bed, serving
from windlass import (
    AnyContext,
    CallNext,
    ConfigError,
    Context,
    Kind,
    SyncContext,
    Windlass,
    current_context,
)


@dataclass
class Order:
    number: int


ORDER = Kind("order", Order)


def a_def_handler(app: Windlass) -> None:
    @app.job
    def send(ctx: Context, to: str) -> None: ...


def a_def_execute(app: Windlass) -> None:
    @app.job(name="send")
    @dataclass
    class Send:
        to: str

        def execute(self, ctx: Context) -> None: ...


def a_def_handler_of_a_kind(app: Windlass) -> None:
    @app.job(Kind("send", Order))  # type: ignore[arg-type]
    def take(ctx: Context, order: Order) -> None: ...


def a_def_handler_of_a_schedule(app: Windlass) -> None:
    @app.every("1h")
    def send(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    "register", [a_def_handler, a_def_execute, a_def_handler_of_a_kind, a_def_handler_of_a_schedule]
)
def test_a_def_handler_with_the_context_of_coroutines_is_refused(
    register: Callable[[Windlass], None],
) -> None:
    with pytest.raises(ConfigError) as refused:
        register(Windlass("memory://"))
    assert str(refused.value) == (
        "kind 'send': ctx must be a SyncContext in a `def` handler, got Context; write "
        "`ctx: SyncContext`, or make the handler `async def`"
    )


def test_an_async_handler_with_the_context_of_threads_is_refused() -> None:
    app = Windlass("memory://")

    async def send(ctx: SyncContext) -> None: ...

    with pytest.raises(ConfigError) as refused:
        app.job(send)
    assert str(refused.value) == (
        "kind 'send': ctx must be a Context in an `async def` handler, got SyncContext; write "
        "`ctx: Context`, or make the handler `def`"
    )


def test_every_sort_of_handler_is_given_the_context_of_its_language(bed: Bed) -> None:
    app, seen = bed.app(), dict[str, type[Any]]()

    def note(ctx: AnyContext) -> None:
        seen[ctx.kind] = type(ctx)
        assert type(current_context()) is type(ctx)

    @app.job
    async def in_loop(ctx: Context) -> None:
        note(ctx)

    @app.job
    def in_thread(ctx: SyncContext) -> None:
        note(ctx)

    @app.job
    async def any_in_loop(ctx: AnyContext) -> None:
        note(ctx)

    @app.job
    def any_in_thread(ctx: AnyContext) -> None:
        note(ctx)

    @app.job(ORDER)
    def take(ctx: SyncContext, order: Order) -> None:
        note(ctx)

    @dataclass
    class AsClass:
        number: int

        def execute(self, ctx: SyncContext) -> None:
            note(ctx)

    as_class = app.job(name="as_class")(AsClass)

    async def main() -> None:
        async with serving(app):
            handles = [
                await in_loop.aenqueue(),
                await in_thread.aenqueue(),
                await any_in_loop.aenqueue(),
                await any_in_thread.aenqueue(),
                await take.aenqueue(Order(1)),
                await as_class.aenqueue(number=1),
            ]
            for handle in handles:
                await handle.aresult("60s")

    asyncio.run(main())
    assert seen == {
        "in_loop": Context,
        "in_thread": SyncContext,
        "any_in_loop": Context,
        "any_in_thread": SyncContext,
        "order": SyncContext,
        "as_class": SyncContext,
    }


def test_attributes_that_middleware_sets_are_on_the_context_of_a_def_handler(bed: Bed) -> None:
    async def tenancy(ctx: Context, call_next: CallNext) -> Any:
        ctx.tenant = "acme"  # type: ignore[attr-defined]
        found = await call_next()
        return f"{found}, handled by {ctx.handled_by}"  # type: ignore[attr-defined]

    app = bed.app(middleware=[tenancy])

    @app.job
    def send(ctx: SyncContext, to: str) -> str:
        assert ctx.arguments == {"to": to}
        ctx.handled_by = "a thread"  # type: ignore[attr-defined]
        return str(ctx.tenant)  # type: ignore[attr-defined]

    async def main() -> None:
        async with serving(app):
            assert await (await send.aenqueue("ada")).aresult("60s") == "acme, handled by a thread"

    asyncio.run(main())


def test_a_function_of_a_coroutine_in_a_thread_has_the_context_that_blocks(bed: Bed) -> None:
    app = bed.app()

    def inside() -> str:
        return type(current_context()).__name__

    @app.job
    async def both(ctx: Context) -> list[str]:
        return [inside(), await asyncio.to_thread(inside), await ctx.step("in a thread", inside)]

    async def main() -> None:
        async with serving(app):
            found = await (await both.aenqueue()).aresult("60s")
            assert found == ["Context", "SyncContext", "SyncContext"]

    asyncio.run(main())
