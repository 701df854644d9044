"""The chunks of many runs are written together, but not more at once than a store should hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.app_on_store import Bed, Through, serving, until
from windlass import Context
from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.store import Store

JOBS = 60
CHUNK = 200_000


class Slow(Through):
    """A store that answers the first append when all runs have streamed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.all_have_streamed = asyncio.Event()
        self.groups: list[int] = []
        self.sizes: list[int] = []

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        await self.all_have_streamed.wait()
        self.groups.append(len(groups))
        self.sizes.append(sum(group.size for group in groups))
        return await self.inner.stream_append(groups)


@pytest.mark.parametrize("bed", ["memory"], indirect=True)
def test_many_large_chunks_are_written_in_several_groups(bed: Bed) -> None:
    streamed = 0

    async def main() -> Slow:
        app = bed.app(store=(slow := Slow(bed.store())), concurrency=JOBS)

        @app.job
        async def large(ctx: Context) -> None:
            nonlocal streamed
            await ctx.stream("x" * CHUNK)
            streamed += 1

        handles = [await large.aenqueue() for _ in range(JOBS)]
        async with serving(app):
            await until(lambda: streamed == JOBS)
            slow.all_have_streamed.set()
            for handle in handles:
                await handle.aresult("60s")
        return slow

    slow = asyncio.run(main())
    assert sum(slow.groups) == JOBS
    assert max(slow.groups) > 10
    assert max(slow.sizes) < 8 * 1024 * 1024 + 2 * CHUNK
