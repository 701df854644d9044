"""Owns Windlass on PostgreSQL as a contender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.peer import Starts
from windlass import Context, Kind, Windlass

_SLOTS = 4_000
_BATCH = 2_000
TENANTS = 1_000
"""To whom the jobs of the kinds `tenanted` and `fair` belong, in turn."""


class WindlassPostgres:
    """Windlass on PostgreSQL, with as many slots as keep a fast handler busy."""

    name: ClassVar[str] = "Windlass"
    settings: ClassVar[str] = f"concurrency {_SLOTS}, claim_size {_BATCH}"
    left: ClassVar[str] = "SELECT EXISTS (SELECT FROM windlass.jobs)"
    chunk: ClassVar[int] = 5_000
    new_loop = None
    options: ClassVar[dict[str, Any]] = {"log_level": "warning"}

    def __init__(self, url: str, starts: Starts) -> None:
        note = starts.note
        self._app = Windlass(url, **self.options)

        @self._app.job
        async def noop() -> None:
            note(time.monotonic_ns())

        self._app.limit("wide", concurrency=_SLOTS)
        self._app.limit("fast", rate="1000000/s")
        self._app.limit("shut", rate="1/d")

        @self._app.job(limit="wide")
        async def bounded() -> None:
            note(time.monotonic_ns())

        @self._app.job(limit="fast")
        async def paced() -> None:
            note(time.monotonic_ns())

        @self._app.job(limit="shut")
        async def blocked() -> None: ...

        @self._app.job
        async def nap() -> None:
            note(time.monotonic_ns())
            await asyncio.sleep(0.01)

        @self._app.job
        async def stamped(sent: int) -> None:
            note(time.monotonic_ns() - sent)

        @self._app.job
        async def tenanted(tenant: str) -> None:
            del tenant
            note(time.monotonic_ns())

        @self._app.job(fair_by="tenant")
        async def fair(tenant: str) -> None:
            del tenant
            note(time.monotonic_ns())

        @self._app.job
        async def joined(ctx: Context) -> None:
            await ctx.results()
            note(time.monotonic_ns())

        self._joined = joined
        self._kinds = {
            "noop": noop,
            "nap": nap,
            "bounded": bounded,
            "paced": paced,
            "blocked": blocked,
            "ten_steps": _ten_steps(self._app, note),
        }
        self._noop = noop
        self._stamped = stamped
        self._of_tenants = {"tenanted": tenanted, "fair": fair}
        self._elsewhere = self._app.producer(Kind("elsewhere", dict[str, str]))

    async def install(self) -> None:
        """Make the schema."""
        await self._app.store.migrate()
        await self._app.aclose()

    async def open(self) -> None:
        """Nothing: it connects when it has to."""

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        await self._noop.aenqueue()

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op from a thread without an event loop."""
        self._noop.enqueue()

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many jobs in one call."""
        if kind == "elsewhere":
            drafts = [self._elsewhere.draft({}) for _ in range(count)]
        elif kind in self._of_tenants:
            draft = self._of_tenants[kind].draft
            drafts = [draft(f"tenant-{number % TENANTS}") for number in range(count)]
        else:
            producer = self._kinds[kind].using(priority=priority)
            drafts = [producer.draft() for _ in range(count)]
        await self._app.aenqueue_many(drafts)

    async def enqueue_fan_in(self, count: int) -> None:
        """Enqueue a flow of many jobs and one after them, which gets their results."""
        parts = (self._noop.draft() for _ in range(count))
        await self._app.group(parts, then=self._joined.draft()).aenqueue()

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        await self._stamped.aenqueue(time.monotonic_ns())

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled."""
        del idle
        await self._app.arun_worker(
            concurrency=slots or _SLOTS, claim_size=min(slots or _SLOTS, _BATCH)
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._app.aclose()


class WindlassWithoutWakeUps(WindlassPostgres):
    """The same, but nobody is woken: workers find jobs by polling alone."""

    name: ClassVar[str] = "Windlass without wake-ups"
    options: ClassVar[dict[str, Any]] = WindlassPostgres.options | {"listen_url": "off"}


def _ten_steps(app: Windlass, note: Callable[[int], None]) -> Any:
    async def nothing() -> None: ...

    @app.job
    async def ten_steps(ctx: Context) -> None:
        for number in range(10):
            await ctx.step(f"step-{number}", nothing)
        note(time.monotonic_ns())

    return ten_steps
