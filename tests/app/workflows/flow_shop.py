"""Owns the shop whose jobs make up the flows of tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from tests.support.app_on_store import Bed, serving
from windlass import Backoff, Context, Flow, Node, PermanentError, Retry, State, Windlass

FAILS = "this one fails"


class Shop:
    """An app with handlers that add, that fail, and that note what they were given."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.noted: list[Any] = []
        self.gate = asyncio.Event()
        self.tries = 0
        shop = self

        @app.job(max_retries=0)
        async def add(number: int) -> int:
            if number < 0:
                raise PermanentError(FAILS)
            return number

        @app.job
        async def total(ctx: Context) -> int:
            return sum(await ctx.results())

        @app.job
        async def note(ctx: Context, what: str = "") -> None:
            shop.noted.append((what, await ctx.results()))

        @app.job
        async def wait() -> int:
            await shop.gate.wait()
            return 1

        @app.job(retry=Retry(max_retries=5, backoff=Backoff(base=timedelta(0))))
        async def stubborn() -> int:
            shop.tries += 1
            if shop.tries == 1:
                raise ConnectionError
            return shop.tries

        self.add, self.total, self.note, self.wait = add, total, note, wait
        self.stubborn = stubborn


Test = Callable[[Shop], Awaitable[None]]


def on_a_shop(test: Test) -> Callable[[Bed], None]:
    """Give a test a shop with a worker."""
    return _run(test, works=True)


def on_an_idle_shop(test: Test) -> Callable[[Bed], None]:
    """Give a test a shop without a worker."""
    return _run(test, works=False)


def _run(test: Test, *, works: bool) -> Callable[[Bed], None]:
    async def main(shop: Shop) -> None:
        async with serving(shop.app) if works else nullcontext():
            await test(shop)

    return lambda bed: asyncio.run(main(Shop(bed.app())))


async def states(flow: Flow, *nodes: Node[Any]) -> list[State]:
    return [(await node.handle.ainfo()).state for node in nodes]
