"""Owns the connections of each event loop, which no other loop can use."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

from windlass.store.per_loop import OfOneLoop, PerLoop
from windlass.store.redis.connections.listener import Listener
from windlass.store.redis.connections.loop_connection import LoopNetwork
from windlass.store.redis.connections.loop_pool import DedicatedConnection, LoopPool
from windlass.store.redis.connections.servers.topology import Topology
from windlass.store.redis.connections.servers.urls import RedisAddress


class LoopConnections(OfOneLoop):
    """The connections of an event loop, each made when it is first needed.

    `hot` carries claims and settles, `pool` everything else, and `listener` hears of new jobs.
    """

    listener: Listener

    def __init__(self, address: RedisAddress, topology: Topology, sleeper: str) -> None:
        self.sleeper = sleeper
        """The name by which it is woken, on the channel `{prefix}:wake:<name>`."""
        super().__init__()
        network = LoopNetwork(address, topology)
        self.hot = DedicatedConnection(network)
        self.pool = LoopPool(network)
        self.run = self.pool.run
        self.listener = Listener(network, b"%bwake:%b" % (address.namespace, sleeper.encode()))
        self._end = _close_with_the_loop(self.listener, self.hot, self.pool)
        with suppress(StopIteration):
            self._end.asend(None).send(None)

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


class ConnectionsPerLoop(PerLoop[LoopConnections]):
    """The connections of every event loop of this process that uses the store."""

    @property
    def pools(self) -> list[LoopPool]:
        """The pools of all event loops."""
        return [here.pool for here in self.all]
