"""Owns the writing of chunks to the streams of jobs, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.worker.engine.writing.fenced_writer import FencedWriter

_GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of chunks after which a group ends; a store holds several copies of them."""


class Streamer(FencedWriter[ChunkGroup, Appended]):
    """Writes the chunks of all runs, many at once. A run sends one group after the other."""

    name = "streamer"
    delayed_event = "stream.delayed"

    def _take_group(self) -> None:
        sizes = accumulate(note.item.size for note in self._waiting)
        count = 1 + sum(size < _GROUP_BYTES for size in sizes)
        self._under_way, self._waiting = self._waiting[:count], self._waiting[count:]

    async def _send(self, items: Sequence[ChunkGroup]) -> list[Appended | None]:
        return await self._store.stream_append(items)
