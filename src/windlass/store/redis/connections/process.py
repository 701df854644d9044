"""Owns all connections of a store in one process; a fork of it begins with none."""

from __future__ import annotations

import os
import secrets
import weakref

from windlass.store.redis.connections.blocking import BlockingConnections
from windlass.store.redis.connections.per_loop import ConnectionsPerLoop, LoopConnections
from windlass.store.redis.connections.servers.topology import Topology
from windlass.store.redis.connections.servers.urls import RedisAddress


class RedisConnections:
    """The connections of a store: of each event loop, of producers' threads, and of the lease."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self._start_anew()
        _all.add(self)

    def _start_anew(self) -> None:
        self.topology = Topology(self.address)
        self.by_loop = ConnectionsPerLoop()
        self._start_anew_in_threads()

    def _start_anew_in_threads(self) -> None:
        self.blocking = BlockingConnections(self.address, self.topology)
        """For threads of producers."""
        self.heartbeat = BlockingConnections(self.address, self.topology, most=1)
        """For the lease alone, so that calls of users cannot delay it."""

    def here(self) -> LoopConnections:
        """Return the connections of the running event loop."""
        return self.by_loop.here(self._make)

    async def close(self) -> None:
        """Close the connections of the running event loop, and all blocking ones.

        Calls that come later open new ones, and keep them.
        """
        await self.by_loop.close_here()
        closing = self.blocking, self.heartbeat
        self._start_anew_in_threads()
        for connections in closing:
            connections.close()

    def _make(self) -> LoopConnections:
        sleeper = secrets.token_hex(8)
        return LoopConnections(self.address, self.topology, sleeper)

    def after_fork_in_child(self) -> None:
        """Start without connections: they belong to the process that opened them."""
        _inherited.append((self.by_loop, self.blocking, self.heartbeat))
        self._start_anew()


_inherited: list[object] = []
"""Kept, so that nothing of a parent process is closed by the child's garbage collection."""
_all: weakref.WeakSet[RedisConnections] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for connections in list(_all):
        connections.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
