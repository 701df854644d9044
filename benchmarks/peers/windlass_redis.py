"""Owns Windlass on Redis as a contender: as it comes, and with more slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from benchmarks.peer import Starts
from benchmarks.peers.redis_peer import BlockingPeer
from windlass import Windlass
from windlass.core.changes import Changes
from windlass.core.records import Json
from windlass.settings import Settings

_DEFAULTS = Settings()
_SLOTS = 2_000
_BATCH = 250
LOADED = "loaded:"
"""A kind whose jobs carry as many bytes as are named behind it."""
SPREAD = "spread:"
"""A kind whose jobs are spread over as many queues as are named behind it."""


class WindlassRedis(BlockingPeer):
    """Windlass on Redis, with its defaults."""

    name: ClassVar[str] = "Windlass"
    settings: ClassVar[str] = (
        f"the defaults: concurrency {_DEFAULTS.concurrency}, claim_size {_DEFAULTS.claim_size}"
    )
    left: ClassVar[str] = """
        local left = 0
        local counts = redis.call('HGETALL', '{windlass}:n')
        for at = 1, #counts, 2 do
            if counts[at]:find('^[123]') then left = left + counts[at + 1] end
        end
        return left
    """
    chunk: ClassVar[int] = 5_000
    flags: ClassVar[dict[str, Any]] = {}

    def __init__(self, url: str, starts: Starts) -> None:
        note = starts.note
        self._app = Windlass(url, log_level="warning")

        @self._app.job
        async def noop() -> None:
            note(time.monotonic_ns())

        @self._app.job
        async def loaded(data: str) -> None:
            del data
            note(time.monotonic_ns())

        @self._app.job
        async def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        self._noop = noop
        self._loaded = loaded
        self._stamped = stamped

    async def install(self) -> None:
        """Make the layout."""
        await self._app.store.migrate()
        await self._app.aclose()

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        self._noop.enqueue()

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many jobs in one call."""
        del priority
        if kind.startswith(LOADED):
            data = "x" * int(kind.removeprefix(LOADED))
            drafts = [self._loaded.draft(data) for _ in range(count)]
        elif kind.startswith(SPREAD):
            queues = int(kind.removeprefix(SPREAD))
            kinds = [self._noop.using(queue=f"queue-{number}") for number in range(queues)]
            drafts = [kinds[number % queues].draft() for number in range(count)]
        else:
            drafts = [self._noop.draft() for _ in range(count)]
        await self._app.aenqueue_many(drafts)

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._stamped.aenqueue(time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del idle
        await self._app.arun_worker(**self.flags | ({"concurrency": slots} if slots else {}))

    async def contend(self, names: Sequence[str], count: int) -> list[float]:
        """Add one to each record so many times, all records at once; return what each add took."""
        took: list[float] = []

        async def add(name: str) -> None:
            def decide(known: Mapping[str, Json], _now: datetime) -> Changes[None]:
                value = known.get(name, {}).get("value", 0)
                return Changes(answer=None, records={name: {"value": value + 1}})

            for _ in range(count):
                began = time.perf_counter()
                await self._app.store.apply([name], decide)
                took.append(time.perf_counter() - began)

        await asyncio.gather(*map(add, names))
        return took

    async def total(self, prefix: str) -> int:
        """Return the sum of the records whose names begin with this."""
        records = await self._app.store.records(prefix)
        return sum(record["value"] for record in records.values())

    async def close(self) -> None:
        """Let go of the connections."""
        await self._app.aclose()


class WindlassTuned(WindlassRedis):
    """The same, with as many slots as keep a fast handler busy."""

    name: ClassVar[str] = "Windlass, tuned"
    settings: ClassVar[str] = f"concurrency {_SLOTS}, claim_size {_BATCH}"
    flags: ClassVar[dict[str, Any]] = {"concurrency": _SLOTS, "claim_size": _BATCH}
