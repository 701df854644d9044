"""Owns the pools: connections that producers, queries and handlers share, blocking and awaitable.

A pool keeps some connections, and opens more under load, which it closes when they are returned. An
idle connection is checked before it is lent; an old one is replaced.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Generic, TypeVar

import psycopg
from msgspec import Struct
from psycopg import errors
from psycopg.pq import TransactionStatus

from windlass.core.errors import StoreUnavailable
from windlass.store.postgres.connections.connection import BlockingConnection, LoopConnection
from windlass.store.postgres.connections.server_errors import (
    UNKNOWN_STATEMENT,
    translate,
    translated,
)

C = TypeVar("C", BlockingConnection, LoopConnection)
_FRESH_SECONDS = 1.0
"""Seconds for which a connection that has just worked is assumed to work still."""
_PING_SECONDS = 2.0
"""Seconds after which an idle connection that does not answer counts as dead."""
SPARE_CONNECTIONS = 4
"""Connections that a pool opens for a worker's duties when users hold all others."""


class PoolSize(Struct, frozen=True, kw_only=True):
    """How many connections a pool keeps, how many more it opens, and how old they get."""

    keep: int = 10
    more: int = 20
    recycle: float = 3600.0

    @property
    def most(self) -> int:
        """The number of connections that a pool never exceeds."""
        return self.keep + self.more


class _IdleConnections(Generic[C]):
    """The idle connections of a pool, the last used on top."""

    def __init__(self, limits: PoolSize, spare: int = 0) -> None:
        self._limits = limits
        self._most = limits.most + spare
        self._stack: list[C] = []
        self._shut = False
        self.open = 0

    @property
    def in_use(self) -> int:
        return self.open - len(self._stack)

    def take(self) -> C | None:
        while self._stack:
            connection = self._stack.pop()
            if (
                time.monotonic() - connection.made_at < self._limits.recycle
                and not connection.closed
            ):
                return connection
            self.drop(connection)
        return None

    def put(self, connection: C) -> None:
        """Keep a connection that is usable and within the pool's size."""
        connection.idle_since = time.monotonic()
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE and not self._shut
        if idle and len(self._stack) < self._limits.keep and self.open <= self._most:
            self._stack.append(connection)
        else:
            self.drop(connection)

    def close_broken(self, connection: C, error: BaseException) -> None:
        """Close the connections that a server which is shutting down, or has become read-only, has
        left.
        """
        cause = error.__cause__ if isinstance(error, StoreUnavailable) else error
        if connection.closed or isinstance(cause, errors.ReadOnlySqlTransaction):
            self.clear()
            connection.pgconn.finish()
        elif isinstance(cause, UNKNOWN_STATEMENT):
            connection.pgconn.finish()

    def drop(self, connection: C) -> None:
        self.open -= 1
        connection.pgconn.finish()

    def shut(self) -> None:
        """Close every idle connection now, and the others when they are returned."""
        self._shut = True
        self.clear()

    def clear(self) -> None:
        while self._stack:
            self.drop(self._stack.pop())


def _is_fresh(connection: BlockingConnection | LoopConnection) -> bool:
    return time.monotonic() - connection.idle_since < _FRESH_SECONDS


class _Lender(Generic[C]):
    def __init__(self, conninfo: str, location: str, limits: PoolSize, spare: int = 0) -> None:
        self._conninfo = conninfo
        self._location = location
        self._limits = limits
        self._idle: _IdleConnections[C] = _IdleConnections(limits, spare)

    @property
    def open(self) -> int:
        """Number of open connections."""
        return self._idle.open

    @property
    def in_use(self) -> int:
        """Number of connections that are lent."""
        return self._idle.in_use


class _Borrowed:
    """A connection for the duration of a `with`; a generator would take three times as long."""

    __slots__ = ("_connection", "_pool", "_timeout")

    def __init__(self, pool: Pool, timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout

    def __enter__(self) -> BlockingConnection:
        self._connection = self._pool.lend(self._timeout)
        return self._connection

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        self._pool.take_back(self._connection, error)


class Pool(_Lender[BlockingConnection]):
    """Blocking connections, for threads."""

    def __init__(self, conninfo: str, location: str, limits: PoolSize) -> None:
        super().__init__(conninfo, location, limits)
        self._slots = threading.BoundedSemaphore(limits.most)
        self._lock = threading.Lock()

    def connection(self, timeout: float | None) -> _Borrowed:
        """Lend a connection; with a timeout, all work on it ends within that time.

        Raises: StoreUnavailable: the server cannot be reached, or all connections are in use.
        """
        return _Borrowed(self, timeout)

    def lend(self, timeout: float | None) -> BlockingConnection:
        """Lend a connection, until `take_back`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._slots.acquire(timeout=timeout):
            raise StoreUnavailable(_exhausted(self._location, self._limits))
        try:
            connection = self._take(deadline)
        except BaseException as error:
            self._slots.release()
            if isinstance(error, psycopg.Error):
                raise translate(error, self._location) from error
            raise
        connection.deadline = deadline
        return connection

    def take_back(self, connection: BlockingConnection, error: BaseException | None) -> None:
        """Keep a connection that was lent, unless an error has shown that it is broken."""
        connection.deadline = None
        with self._lock:
            if error is not None:
                self._idle.close_broken(connection, error)
            self._idle.put(connection)
        self._slots.release()

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        with self._lock:
            self._idle.shut()

    def _take(self, deadline: float | None) -> BlockingConnection:
        while True:
            with self._lock:
                connection = self._idle.take()
            if connection is None:
                return self._connect(deadline)
            if _is_fresh(connection) or self._answers(connection, deadline):
                return connection

    def _answers(self, connection: BlockingConnection, deadline: float | None) -> bool:
        # Not the caller's whole time: if this connection is dead, a new one may well answer.
        soon = time.monotonic() + _PING_SECONDS
        connection.deadline = soon if deadline is None else min(soon, deadline)
        try:
            connection.execute("")
        except psycopg.Error:
            with self._lock:
                self._idle.drop(connection)
                # The other idle connections are most likely dead as well.
                self._idle.clear()
            return False
        return True

    def _connect(self, deadline: float | None) -> BlockingConnection:
        connection = BlockingConnection.open(self._conninfo, deadline)
        connection.made_at = time.monotonic()
        with self._lock:
            self._idle.open += 1
        return connection


class _AsyncBorrowed:
    __slots__ = ("_connection", "_duty", "_pool", "_timeout")

    def __init__(self, pool: AsyncPool, timeout: float | None, duty: bool) -> None:
        self._pool = pool
        self._timeout = timeout
        self._duty = duty

    async def __aenter__(self) -> LoopConnection:
        self._connection = await self._pool.lend(self._timeout, duty=self._duty)
        return self._connection

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        self._pool.take_back(self._connection, error)


class AsyncPool(_Lender[LoopConnection]):
    """Connections for one event loop."""

    def __init__(self, conninfo: str, location: str, limits: PoolSize) -> None:
        super().__init__(conninfo, location, limits, SPARE_CONNECTIONS)
        self._slots = asyncio.BoundedSemaphore(limits.most)
        self._spare = asyncio.BoundedSemaphore(SPARE_CONNECTIONS)

    def connection(self, timeout: float | None, *, duty: bool = False) -> _AsyncBorrowed:
        """Lend a connection; the timeout is for getting one.

        For a worker's duty there are a few more when users hold all others.

        Raises: StoreUnavailable: the server cannot be reached, or all connections are in use.
        """
        return _AsyncBorrowed(self, timeout, duty)

    async def lend(self, timeout: float | None, *, duty: bool = False) -> LoopConnection:
        """Lend a connection, until `take_back`."""
        slots = await self._acquire(timeout, duty)
        try:
            connection = self._idle.take()
            if connection is None or not _is_fresh(connection):
                with translated(self._location):
                    connection = await self._take(connection, timeout)
        except BaseException:
            slots.release()
            raise
        connection.is_spare = slots is self._spare
        return connection

    def take_back(self, connection: LoopConnection, error: BaseException | None) -> None:
        """Keep a connection that was lent, unless an error has shown that it is broken."""
        if error is not None:
            self._idle.close_broken(connection, error)
        self._idle.put(connection)
        (self._spare if connection.is_spare else self._slots).release()

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        self._idle.shut()

    async def _acquire(self, timeout: float | None, duty: bool) -> asyncio.Semaphore:
        if not self._slots.locked():
            await self._slots.acquire()
            return self._slots
        slots = self._spare if duty else self._slots
        try:
            async with asyncio.timeout(timeout):
                await slots.acquire()
        except TimeoutError:
            raise StoreUnavailable(_exhausted(self._location, self._limits)) from None
        return slots

    async def _take(
        self, connection: LoopConnection | None, timeout: float | None
    ) -> LoopConnection:
        """Return the idle connection if it answers, or the next one that does, or a new one."""
        try:
            async with asyncio.timeout(timeout):
                while connection is not None:
                    if _is_fresh(connection) or await self._answers(connection):
                        return connection
                    connection = self._idle.take()
                return await self._connect()
        except TimeoutError:
            raise StoreUnavailable(f"{self._location} did not answer in {timeout:g} s") from None

    async def _answers(self, connection: LoopConnection) -> bool:
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await connection.execute("")
        except (psycopg.Error, TimeoutError):
            self._idle.drop(connection)
            self._idle.clear()
            return False
        except asyncio.CancelledError:
            self._idle.drop(connection)
            raise
        return True

    async def _connect(self) -> LoopConnection:
        connection = await LoopConnection.open(self._conninfo)
        connection.made_at = time.monotonic()
        self._idle.open += 1
        return connection


def _exhausted(location: str, limits: PoolSize) -> str:
    return (
        f"{location}: all {limits.most} connections of the pool are in use; hold them for less "
        "time, or raise WINDLASS_POOL_SIZE"
    )
