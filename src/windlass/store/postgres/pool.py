"""Owns the pools: connections that producers, lookers and handlers share, blocking and awaitable.

So many are kept, so many more are opened under load and closed when they come back. One that has
been idle is tried before it is given out; one that is old is replaced.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from windlass.core.errors import StoreUnavailable
from windlass.store.postgres.wire import FORGOTTEN, AsyncWire, Wire, translate, translated

W = TypeVar("W", Wire, AsyncWire)
_FRESH = 1.0
"""Seconds for which a connection that has just worked is taken to work still."""
_PING = 2.0
"""Seconds after which an idle connection that does not answer is taken for dead."""
SPARE = 4
"""Connections that a pool opens for a worker's duties when users hold all others."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many connections a pool keeps, how many more it opens, and how old they get."""

    keep: int = 10
    more: int = 20
    recycle: float = 3600.0

    @property
    def most(self) -> int:
        """The number of connections that a pool never exceeds."""
        return self.keep + self.more


class _Shelf(Generic[W]):
    """The idle connections of a pool, the last used on top."""

    def __init__(self, limits: Limits, spare: int = 0) -> None:
        self._limits = limits
        self._most = limits.most + spare
        self._idle: list[W] = []
        self._shut = False
        self.open = 0

    @property
    def in_use(self) -> int:
        """How many are neither idle nor closed."""
        return self.open - len(self._idle)

    def take(self) -> W | None:
        """Return an idle connection that is young enough, or None."""
        while self._idle:
            wire = self._idle.pop()
            if time.monotonic() - wire.made_at < self._limits.recycle and not wire.closed:
                return wire
            self.drop(wire)
        return None

    def put(self, wire: W) -> None:
        """Keep a connection that can be used again, and is not one too many."""
        wire.idle_since = time.monotonic()
        idle = wire.pgconn.transaction_status == TransactionStatus.IDLE and not self._shut
        if idle and len(self._idle) < self._limits.keep and self.open <= self._most:
            self._idle.append(wire)
        else:
            self.drop(wire)

    def mind(self, wire: W, error: BaseException) -> None:
        """Close what a server that is going away, or can no longer write, has left us with."""
        cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
        if wire.closed or isinstance(cause, errors.ReadOnlySqlTransaction):
            self.clear()
            wire.pgconn.finish()
        elif isinstance(cause, FORGOTTEN):
            wire.pgconn.finish()

    def drop(self, wire: W) -> None:
        """Close a connection for good."""
        self.open -= 1
        wire.pgconn.finish()

    def shut(self) -> None:
        """Close every idle connection now, and the others when they come back."""
        self._shut = True
        self.clear()

    def clear(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self.drop(self._idle.pop())


def _is_fresh(wire: Wire | AsyncWire) -> bool:
    return time.monotonic() - wire.idle_since < _FRESH


class _Loan:
    """A connection for as long as a `with` lasts; a generator would take thrice the time."""

    __slots__ = ("_patience", "_pool", "_wire")

    def __init__(self, pool: Pool, patience: float | None) -> None:
        self._pool = pool
        self._patience = patience

    def __enter__(self) -> Wire:
        self._wire = self._pool.lend(self._patience)
        return self._wire

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        self._pool.take_back(self._wire, error)


class Pool:
    """Blocking connections, for threads."""

    def __init__(self, conninfo: str, location: str, limits: Limits) -> None:
        self._conninfo = conninfo
        self._location = location
        self._limits = limits
        self._room = threading.BoundedSemaphore(limits.most)
        self._lock = threading.Lock()
        self._shelf: _Shelf[Wire] = _Shelf(limits)

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self._shelf.open

    @property
    def in_use(self) -> int:
        """How many of those are lent out."""
        return self._shelf.in_use

    def connection(self, patience: float | None) -> _Loan:
        """Lend a connection; with patience, whatever is done on it ends within that time.

        Raises:
            StoreUnavailable: the server cannot be reached, or all connections are in use.
        """
        return _Loan(self, patience)

    def lend(self, patience: float | None) -> Wire:
        """Lend a connection to who will `take_back` it."""
        deadline = None if patience is None else time.monotonic() + patience
        if not self._room.acquire(timeout=patience):
            raise StoreUnavailable(_exhausted(self._location, self._limits))
        try:
            wire = self._take(deadline)
        except BaseException as error:
            self._room.release()
            if isinstance(error, psycopg.Error):
                raise translate(error, self._location) from error
            raise
        wire.deadline = deadline
        return wire

    def take_back(self, wire: Wire, error: BaseException | None) -> None:
        """Keep a connection that was lent, unless what went wrong with it is its own fault."""
        wire.deadline = None
        with self._lock:
            if error is not None:
                self._shelf.mind(wire, error)
            self._shelf.put(wire)
        self._room.release()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._lock:
            self._shelf.shut()

    def _take(self, deadline: float | None) -> Wire:
        while True:
            with self._lock:
                wire = self._shelf.take()
            if wire is None:
                return self._connect(deadline)
            if _is_fresh(wire) or self._answers(wire, deadline):
                return wire

    def _answers(self, wire: Wire, deadline: float | None) -> bool:
        # Not the caller's whole time: if this one is dead, a new one may well be had.
        soon = time.monotonic() + _PING
        wire.deadline = soon if deadline is None else min(soon, deadline)
        try:
            wire.execute("")
        except psycopg.Error:
            with self._lock:
                self._shelf.drop(wire)
                # The others are most likely of the same age and fate.
                self._shelf.clear()
            return False
        return True

    def _connect(self, deadline: float | None) -> Wire:
        wire = Wire.knock(self._conninfo, deadline)
        wire.made_at = time.monotonic()
        with self._lock:
            self._shelf.open += 1
        return wire


class _AsyncLoan:
    """The same for an `async with`."""

    __slots__ = ("_duty", "_patience", "_pool", "_wire")

    def __init__(self, pool: AsyncPool, patience: float | None, duty: bool) -> None:
        self._pool = pool
        self._patience = patience
        self._duty = duty

    async def __aenter__(self) -> AsyncWire:
        self._wire = await self._pool.lend(self._patience, duty=self._duty)
        return self._wire

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        self._pool.take_back(self._wire, error)


class AsyncPool:
    """Connections for one event loop."""

    def __init__(self, conninfo: str, location: str, limits: Limits) -> None:
        self._conninfo = conninfo
        self._location = location
        self._limits = limits
        self._room = asyncio.BoundedSemaphore(limits.most)
        self._spare = asyncio.BoundedSemaphore(SPARE)
        self._shelf: _Shelf[AsyncWire] = _Shelf(limits, SPARE)

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self._shelf.open

    @property
    def in_use(self) -> int:
        """How many of those are lent out."""
        return self._shelf.in_use

    def connection(self, patience: float | None, *, duty: bool = False) -> _AsyncLoan:
        """Lend a connection; getting one takes no longer than that.

        For a worker's duty there are a few more, for when users hold all that there are for them.

        Raises:
            StoreUnavailable: the server cannot be reached, or all connections are in use.
        """
        return _AsyncLoan(self, patience, duty)

    async def lend(self, patience: float | None, *, duty: bool = False) -> AsyncWire:
        """Lend a connection to who will `take_back` it."""
        room = await self._enter(patience, duty)
        try:
            wire = self._shelf.take()
            if wire is None or not _is_fresh(wire):
                with translated(self._location):
                    wire = await self._take(wire, patience)
        except BaseException:
            room.release()
            raise
        wire.is_spare = room is self._spare
        return wire

    def take_back(self, wire: AsyncWire, error: BaseException | None) -> None:
        """Keep a connection that was lent, unless what went wrong with it is its own fault."""
        if error is not None:
            self._shelf.mind(wire, error)
        self._shelf.put(wire)
        (self._spare if wire.is_spare else self._room).release()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        self._shelf.shut()

    async def _enter(self, patience: float | None, duty: bool) -> asyncio.Semaphore:
        """Wait for room, and return where it was found."""
        if not self._room.locked():
            await self._room.acquire()
            return self._room
        room = self._spare if duty else self._room
        try:
            async with asyncio.timeout(patience):
                await room.acquire()
        except TimeoutError:
            raise StoreUnavailable(_exhausted(self._location, self._limits)) from None
        return room

    async def _take(self, wire: AsyncWire | None, patience: float | None) -> AsyncWire:
        """Return the one that idled, if it answers, or the next that does, or a new one."""
        try:
            async with asyncio.timeout(patience):
                while wire is not None:
                    if _is_fresh(wire) or await self._answers(wire):
                        return wire
                    wire = self._shelf.take()
                return await self._connect()
        except TimeoutError:
            raise StoreUnavailable(f"{self._location} did not answer in {patience:g} s") from None

    async def _answers(self, wire: AsyncWire) -> bool:
        try:
            async with asyncio.timeout(_PING):
                await wire.execute("")
        except (psycopg.Error, TimeoutError):
            self._shelf.drop(wire)
            self._shelf.clear()
            return False
        except asyncio.CancelledError:
            self._shelf.drop(wire)
            raise
        return True

    async def _connect(self) -> AsyncWire:
        wire = await AsyncWire.knock(self._conninfo)
        wire.made_at = time.monotonic()
        self._shelf.open += 1
        return wire


def _exhausted(location: str, limits: Limits) -> str:
    return (
        f"{location}: all {limits.most} connections of the pool are in use; hold them for less "
        "time, or raise WINDLASS_POOL_SIZE"
    )
