"""Owns the connections of each event loop, which no other loop can use."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from windlass.store.redis.connections.listener import Listener
from windlass.store.redis.connections.loop_connection import LoopNetwork
from windlass.store.redis.connections.loop_pool import DedicatedConnection, LoopPool
from windlass.store.redis.connections.topology import Topology
from windlass.store.redis.connections.urls import RedisAddress


class LoopConnections:
    """The connections of an event loop, each made when it is first needed.

    `hot` carries claims and settles, `pool` everything else, and `listener` hears of new jobs.
    """

    def __init__(self, address: RedisAddress, topology: Topology, sleeper: str) -> None:
        self.sleeper = sleeper
        """The name by which it is woken, on the channel `{prefix}:wake:<name>`."""
        self._loop = weakref.ref(asyncio.get_running_loop())
        network = LoopNetwork(address, topology)
        self.hot = DedicatedConnection(network)
        self.pool = LoopPool(network)
        self.run = self.pool.run
        self.listener = Listener(network, b"%bwake:%b" % (address.namespace, sleeper.encode()))
        self._end = _close_with_the_loop(self.listener, self.hot, self.pool)
        with suppress(StopIteration):
            self._end.asend(None).send(None)

    @property
    def is_abandoned(self) -> bool:
        """Whether the event loop is closed, so that these connections are no longer used."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        await self.listener.close()
        self.close_now()

    def close_now(self) -> None:
        """Close every connection without waiting."""
        _close_now(self.listener, self.hot, self.pool)


def _close_now(listener: Listener, hot: DedicatedConnection, pool: LoopPool) -> None:
    listener.close_now()
    hot.close()
    pool.close()


async def _close_with_the_loop(
    listener: Listener, hot: DedicatedConnection, pool: LoopPool
) -> AsyncGenerator[None]:
    """Close connections when their loop ends, or when their owner is collected before that.

    asyncio ends asynchronous generators in both cases; a transport cannot be closed any more once
    its loop is. The generator knows the connections and not their owner, which it would keep alive.
    """
    try:
        yield
    finally:
        _close_now(listener, hot, pool)


class ConnectionsPerLoop:
    """The connections of every event loop of this process that uses the store."""

    def __init__(self) -> None:
        self._by_loop: dict[int, LoopConnections] = {}
        self._lock = threading.Lock()

    @property
    def listening(self) -> bool:
        """Whether any event loop hears of new jobs."""
        with self._lock:
            return any(here.listener.listening for here in self._by_loop.values())

    @property
    def pools(self) -> list[LoopPool]:
        """The pools of all event loops."""
        with self._lock:
            return [here.pool for here in self._by_loop.values()]

    def here(self, make: Callable[[], LoopConnections]) -> LoopConnections:
        """Return the connections of the running event loop, which no other loop can use.

        `make` is not kept, so that a store without users is collected at once.
        """
        key = id(asyncio.get_running_loop())
        here = self._by_loop.get(key)
        if here is None or here.is_abandoned:
            self._close_abandoned()
            here = make()
            with self._lock:
                self._by_loop[key] = here
        return here

    async def close_here(self) -> None:
        """Close the connections of the running event loop, and those of closed loops."""
        key = id(asyncio.get_running_loop())
        with self._lock:
            here = self._by_loop.pop(key, None)
        if here is not None:
            await here.close()
        self._close_abandoned()

    def _close_abandoned(self) -> None:
        with self._lock:
            for key, here in list(self._by_loop.items()):
                if here.is_abandoned:
                    here.close_now()
                    del self._by_loop[key]
