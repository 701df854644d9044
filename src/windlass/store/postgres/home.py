"""Owns what belongs to one event loop and is of no use in another: its connections."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncCursor

from windlass.core.errors import StoreError, StoreUnavailable
from windlass.store.postgres.lanes import Lanes
from windlass.store.postgres.line import HotLine, Line, Speak
from windlass.store.postgres.listen import Ear, Sleep
from windlass.store.postgres.pool import AsyncPool, Limits
from windlass.store.postgres.wire import FORGOTTEN, AsyncWire, adapt, retried, translated

T = TypeVar("T")
_TROUBLE = 2.0
PATIENCE = 30.0
"""Seconds within which whatever is done on a connection of the pool is done, or given up."""


class Home:
    """The connections of an event loop, each made when it is first needed."""

    def __init__(
        self,
        conninfo: str,
        listen: str | None,
        location: str,
        limits: Limits,
        channel: str,
        *,
        sleep: Sleep,
        rise: Callable[[str], Awaitable[None]],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        self._loop = weakref.ref(asyncio.get_running_loop())
        self._location = location
        self._sweeping: asyncio.Task[None] | None = None
        self.hot = HotLine(conninfo, location)
        self.chores = Line(conninfo, location)
        self.pool = AsyncPool(conninfo, location, limits)
        self.lanes = Lanes()
        self.ear = Ear(listen, channel, sleep=sleep, rise=rise, tell=tell, lanes=self.lanes)

    @property
    def is_abandoned(self) -> bool:
        """Whether the event loop is closed, so that nobody will ever use this again."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    async def wait(self, mark: int, timeout: float) -> None:
        """Return once something may have changed since a mark, or time is up."""
        if self._sweeping is not None and not self._sweeping.done():
            # What it finds may be what is waited for.
            await asyncio.wait({self._sweeping}, timeout=timeout)
            return
        due_in = self.lanes.due_in(time.monotonic())
        await self.ear.wait(mark, timeout if due_in is None else min(timeout, due_in))

    def sweep_along(self, sweep: Callable[[Home], Awaitable[object]]) -> None:
        """Sweep beside whatever else is going on, unless one is under way."""

        async def quietly() -> None:
            try:
                await sweep(self)
            except StoreError:
                # Whoever claims meets the same trouble, and tells of it.
                pause = random.uniform(_TROUBLE / 2, _TROUBLE)  # noqa: S311 - spreads load.
                self.lanes.postpone(time.monotonic() + pause)

        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(quietly(), name="windlass-sweep")

    async def look(self, speak: Speak[T], *, again: bool = True, duty: bool = False) -> T:
        """Say something on a connection of the pool, by a cursor with our own loaders."""
        return await self.borrow(lambda wire: speak(_cursor(wire)), again=again, duty=duty)

    async def borrow(
        self,
        work: Callable[[AsyncWire], Awaitable[T]],
        *,
        again: bool = False,
        duty: bool = False,
        patience: float = PATIENCE,
    ) -> T:
        """Do something with a connection of the pool; deadlocks and the like are tried again.

        What can be done `again` is, on a new connection, if the one that idled has been lost. A
        worker's `duty` is done even if users hold all connections that they may have.

        Raises:
            StoreUnavailable: the server is away, or does not answer.
        """
        try:
            return await retried(lambda: self._borrow(work, patience, duty))
        except StoreUnavailable as error:
            if not again or not isinstance(error.__cause__, (psycopg.OperationalError, *FORGOTTEN)):
                raise
            return await retried(lambda: self._borrow(work, patience, duty))

    async def _borrow(
        self, work: Callable[[AsyncWire], Awaitable[T]], patience: float, duty: bool
    ) -> T:
        async with self.pool.connection(patience, duty=duty) as wire:
            try:
                async with asyncio.timeout(patience):
                    with translated(self._location):
                        return await work(wire)
            except TimeoutError as late:
                told = f"{self._location} did not answer in {patience:g} s"
                raise StoreUnavailable(told) from late

    async def close(self) -> None:
        """Let go of everything."""
        await self.ear.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close every connection, without anything that takes time."""
        self.ear.hang_up()
        self.hot.close()
        self.chores.close()
        self.pool.close()


def _cursor(wire: psycopg.AsyncConnection[Any]) -> AsyncCursor[Any]:
    """Return a cursor with our own loaders, on a connection that users borrow, too."""
    cursor = wire.cursor(binary=True)
    adapt(cursor)
    return cursor
