"""Owns the blocking connections of a process: for the threads of producers, and for the lease."""

from __future__ import annotations

import threading
import time
from typing import Any

from windlass.core.errors import StoreUnavailable
from windlass.store.redis.connections.blocking_connection import (
    BlockingConnection,
    BlockingNetwork,
)
from windlass.store.redis.connections.conversation import Conversation
from windlass.store.redis.connections.replies import ConnectionLost, first_error
from windlass.store.redis.connections.script import Command, pack_all
from windlass.store.redis.connections.servers.topology import Topology
from windlass.store.redis.connections.servers.urls import RedisAddress

_FRESH_SECONDS = 0.1
"""Seconds for which a connection that has just worked is not checked again."""


class BlockingConnections:
    """A limited number of connections that threads share; opened on demand."""

    def __init__(
        self, address: RedisAddress, topology: Topology, *, most: int | None = None
    ) -> None:
        self._address = address
        self._topology = topology
        self._network = BlockingNetwork(address, topology)
        self._freed = threading.Condition()
        self._idle: list[BlockingConnection] = []
        self._waiting = 0
        self._closed = False
        self.most = most or address.max_connections
        """Maximum number of connections."""
        self.open = 0
        """Number of connections that are open or being opened."""

    @property
    def in_use(self) -> int:
        """Number of connections in use."""
        return self.open - len(self._idle)

    def run(
        self,
        *commands: Command,
        timeout: float | None = None,
        again: bool = False,
        replicas: int = 0,
        packed: bytes | None = None,
    ) -> list[Any]:
        """Run commands in one round trip, and return the reply to each.

        Retries, until the timeout, reads and what certainly was not executed; with `again`, also
        writes that may have been. With `replicas`, returns once that many have confirmed. A script
        that the server has forgotten runs after the commands behind it. `packed`: the commands.

        Raises:
            StoreUnavailable: nothing was written; the server is away, or does not answer.
            WriteUncertain: something may have been written.
            QueueFull: the server has no memory left.
            StoreError: a command was refused for good.
        """
        started, within = time.monotonic(), self._address.timeout if timeout is None else timeout
        trouble: ConnectionLost | None = None
        replies: list[object] | None = None
        # Fast path: a connection is there and the call succeeds, so no conversation is needed.
        connection = None if replicas else self._ready()
        if connection is not None:
            packed = packed or pack_all(commands, self._address.is_cluster)
            try:
                replies = connection.send(packed, len(commands), started + within)
            except ConnectionLost as error:
                trouble = error
                self._topology.doubt(connection.endpoint)
            finally:
                self._put(connection)
            if replies is not None and first_error(replies) is None:
                return replies
        talk = Conversation(
            commands,
            self._topology,
            self._address,
            now=started,
            timeout=within,
            again=again,
            replicas=replicas,
        )
        is_done = connection is not None and talk.begun(replies, trouble, connection)
        while not is_done:
            time.sleep(talk.pause(time.monotonic()))
            is_done = self._attempt(talk)
        return talk.replies

    def close(self) -> None:
        """Close idle connections now, and the others when their calls are done."""
        self._closed = True
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            connection.close()
            self._release()

    def _attempt(self, talk: Conversation) -> bool:
        try:
            connection = self._take(talk)
        except ConnectionLost as error:
            talk.lost(error)
            return False
        try:
            replies = connection.send(*talk.outgoing(time.monotonic()), talk.deadline)
        except ConnectionLost as error:
            talk.lost(error)
            self._topology.doubt(connection.endpoint)
            return False
        finally:
            self._put(connection)
        return talk.answered(replies, connection)

    def _ready(self) -> BlockingConnection | None:
        """Return an idle connection that leads to the master and was not closed meanwhile."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            is_fresh = time.monotonic() - connection.idle_since < _FRESH_SECONDS
            if self._is_current(connection) and (is_fresh or not connection.is_stale):
                return connection
            connection.close()
            self._put(connection)

    def _take(self, talk: Conversation) -> BlockingConnection:
        if talk.redirect is None:
            while not self._may_make(talk.deadline):
                if (connection := self._ready()) is not None:
                    return connection
        else:
            with self._freed:
                self.open += 1  # Above the limit, for this call.
        try:
            if talk.redirect is not None:
                return self._network.open(talk.redirect, talk.deadline)
            return self._network.connect(talk.deadline)
        except BaseException:
            self._release()
            raise

    def _may_make(self, deadline: float) -> bool:
        """Wait until a connection may be opened, or is idle; return which."""
        with self._freed:
            if self._idle:
                return False
            if self.open < self.most:
                self.open += 1
                return True
            self._waiting += 1
            try:
                # Checked again: a connection is put back without the lock, and only afterwards is
                # it checked whether a thread waits.
                left = deadline - time.monotonic()
                is_free = bool(self._idle) or (left > 0 and self._freed.wait(left))
            finally:
                self._waiting -= 1
            if not is_free:
                raise StoreUnavailable(
                    f"{self._address.location}: all {self.most} connections are in use; raise "
                    "max_connections in the URL"
                )
        return False

    def _put(self, connection: BlockingConnection) -> None:
        if connection.closed or not self._is_current(connection):
            connection.close()
            self._release()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._waiting:
            with self._freed:
                self._freed.notify()
        if self._closed:
            self.close()

    def _is_current(self, connection: BlockingConnection) -> bool:
        return self._topology.is_current(connection.endpoint, connection.term)

    def _release(self) -> None:
        with self._freed:
            self.open -= 1
            if self._waiting:
                self._freed.notify()
