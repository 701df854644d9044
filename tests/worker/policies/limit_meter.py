"""Owns what measures how many jobs ran at once, and when they started."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from tests.support.app_on_store import PROMPT, serving, until
from windlass import State, Windlass


async def done(
    app: Windlass, count: int, *, queue: str = "default", within: float = PROMPT
) -> None:
    async def is_done() -> bool:
        counts = await app.store.counts()
        return (
            sum(e.count for e in counts if e.state is State.COMPLETED and e.queue == queue) >= count
        )

    await until(is_done, within=within)


async def three(stack: AsyncExitStack, app: Windlass, **flags: Any) -> None:
    for _ in range(3):
        await stack.enter_async_context(serving(app, **flags))


class Meter:
    """Counts what runs at the same time, and when it started."""

    def __init__(self) -> None:
        self.now, self.most = Counter[str](), Counter[str]()
        self.starts: list[float] = []

    async def run(
        self, key: str = "", seconds: float = 0.01, amount: int = 1, together: int = 0
    ) -> None:
        """Run for a while, and until this many once ran at the same time."""
        self.starts.append(time.monotonic())
        self.now[key] += amount
        self.most[key] = max(self.most[key], self.now[key])
        await asyncio.sleep(seconds)
        if self.most[key] < together:
            await until(lambda: self.most[key] >= together)
        self.now[key] -= amount

    def most_within(self, period: float) -> int:
        starts = sorted(self.starts)
        return max(sum(at <= each < at + period for each in starts) for at in starts)
