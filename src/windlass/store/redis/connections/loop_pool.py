"""Owns the connections of an event loop for calls: one shared by many, or one for each."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from windlass.core.errors import StoreUnavailable
from windlass.store.redis.connections.conversation import Conversation
from windlass.store.redis.connections.loop_connection import LoopConnection, LoopNetwork
from windlass.store.redis.connections.replies import ConnectionLost, first_error
from windlass.store.redis.connections.script import Command, pack_all


class _Lender(ABC):
    """Runs calls on connections that are open, or opened for them."""

    def __init__(self, network: LoopNetwork) -> None:
        self._network = network

    async def run(
        self,
        *commands: Command,
        timeout: float | None = None,
        again: bool = False,
        replicas: int = 0,
        packed: bytes | None = None,
    ) -> list[Any]:
        """Run commands in one write and one round trip, and return the reply to each.

        Retries, until the timeout, reads and what certainly was not executed; with `again`, also
        writes that may have been. With `replicas`, returns once that many have confirmed. A script
        that the server has forgotten runs after the commands behind it. `packed`: the commands.

        Raises:
            StoreUnavailable: nothing was written; the server is away, or does not answer.
            WriteUncertain: something may have been written.
            QueueFull: the server has no memory left.
            StoreError: a command was refused for good.
        """
        network = self._network
        within = network.address.timeout if timeout is None else timeout
        started = asyncio.get_running_loop().time()
        trouble: ConnectionLost | None = None
        replies: list[object] | None = None
        # Fast path: a connection is there and the call succeeds, so no conversation is needed.
        connection = None if replicas else self.ready()
        if connection is not None:
            packed = packed or pack_all(commands, network.address.is_cluster)
            try:
                replies = await connection.send(packed, len(commands), started + within)
            except ConnectionLost as error:
                trouble = error
                network.topology.doubt(connection.endpoint)
            finally:
                self.put(connection)
            if replies is not None and first_error(replies) is None:
                return replies
        talk = Conversation(
            commands,
            network.topology,
            network.address,
            now=started,
            timeout=within,
            again=again,
            replicas=replicas,
        )
        if connection is None or not talk.begun(replies, trouble, connection):
            await _attempt_until_done(talk, network, self)
        return talk.replies

    @abstractmethod
    def ready(self) -> LoopConnection | None:
        """Return a connection to the master, if there is one right now."""

    @abstractmethod
    async def take(self, deadline: float) -> LoopConnection:
        """Return a connection to the master, opened if necessary."""

    @abstractmethod
    def put(self, connection: LoopConnection) -> None:
        """Take back a connection."""


async def _attempt_until_done(talk: Conversation, network: LoopNetwork, lender: _Lender) -> None:
    loop = asyncio.get_running_loop()
    is_done = False
    while not is_done:
        await asyncio.sleep(talk.pause(loop.time()))
        is_done = await _attempt(talk, network, lender)


async def _attempt(talk: Conversation, network: LoopNetwork, lender: _Lender) -> bool:
    if talk.redirect is not None:
        return await _ask(talk, network)
    try:
        connection = await lender.take(talk.deadline)
    except ConnectionLost as error:
        talk.lost(error)
        return False
    try:
        replies = await connection.send(
            *talk.outgoing(asyncio.get_running_loop().time()), talk.deadline
        )
    except ConnectionLost as error:
        talk.lost(error)
        network.topology.doubt(connection.endpoint)
        return False
    finally:
        lender.put(connection)
    return talk.answered(replies, connection)


async def _ask(talk: Conversation, network: LoopNetwork) -> bool:
    """Send one call to the node to which a slot is being moved."""
    try:
        connection = await network.open(talk.redirect or network.address.hosts[0], talk.deadline)
    except ConnectionLost as error:
        talk.lost(error)
        return False
    try:
        replies = await connection.send(
            *talk.outgoing(asyncio.get_running_loop().time()), talk.deadline
        )
    except ConnectionLost as error:
        talk.lost(error)
        return False
    finally:
        connection.close()
    return talk.answered(replies, connection)


class DedicatedConnection(_Lender):
    """One connection for any number of concurrent calls; opened again when it is lost."""

    def __init__(self, network: LoopNetwork) -> None:
        super().__init__(network)
        self._connection: LoopConnection | None = None
        self._lock = asyncio.Lock()

    @property
    def open(self) -> int:
        """Number of connections: one or none."""
        return int(self.ready() is not None)

    def ready(self) -> LoopConnection | None:
        """Return the connection, unless it was lost, or leads to a former master."""
        connection = self._connection
        if (
            connection is None
            or connection.closed
            or not self._network.topology.is_current(connection.endpoint, connection.term)
        ):
            return None
        return connection

    async def take(self, deadline: float) -> LoopConnection:
        """Return the connection, opened again if necessary."""
        async with self._lock:
            if (connection := self.ready()) is None:
                self.close()
                self._connection = connection = await self._network.connect(deadline)
        return connection

    def put(self, connection: LoopConnection) -> None:
        """Keep the connection, which other calls use as well."""

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class LoopPool(_Lender):
    """Connections for one call each at a time, of a limited number; callers wait in turn."""

    def __init__(self, network: LoopNetwork, *, most: int | None = None) -> None:
        super().__init__(network)
        self._idle: list[LoopConnection] = []
        self._waiting: deque[asyncio.Future[LoopConnection | None]] = deque()
        self._closed = False
        self.most = most or network.address.max_connections
        """Maximum number of connections."""
        self.open = 0
        """Number of connections that are open or being opened."""

    @property
    def in_use(self) -> int:
        """Number of connections in use."""
        return self.open - len(self._idle)

    def ready(self) -> LoopConnection | None:
        """Lend an idle connection; no call waits while there is one."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_usable(connection):
                return connection
            self._pass_on(connection)
        return None

    async def take(self, deadline: float) -> LoopConnection:
        """Lend a connection to the master, or wait in turn for one."""
        if (connection := self.ready()) is not None:
            return connection
        if self.open < self.most:
            self.open += 1
        else:
            connection = await self._wait(deadline)
        if connection is not None and self._is_usable(connection):
            return connection
        try:
            return await self._network.connect(deadline)
        except BaseException:
            self._pass_on(None)
            raise

    def put(self, connection: LoopConnection) -> None:
        """Take a connection back; one whose caller has gone before the reply is closed."""
        self._pass_on(connection)

    def close(self) -> None:
        """Close idle connections now, and the others when they come back."""
        self._closed = True
        while self._idle:
            self._pass_on(self._idle.pop())

    def _is_usable(self, connection: LoopConnection) -> bool:
        return not connection.closed and self._network.topology.is_current(
            connection.endpoint, connection.term
        )

    async def _wait(self, deadline: float) -> LoopConnection | None:
        """Wait in turn for a connection, or for permission to open one."""
        turn: asyncio.Future[LoopConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                return await turn
        except BaseException as error:
            if turn.cancel() or turn.cancelled():
                self._waiting.remove(turn)
            else:  # The connection came at the same moment.
                self._pass_on(turn.result())
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(
                    f"{self._network.address.location}: all {self.most} connections are in use; "
                    "raise max_connections in the URL"
                ) from None
            raise

    def _pass_on(self, connection: LoopConnection | None) -> None:
        """Give a connection, or the permission to make one, to the caller that waits longest."""
        if connection is not None and (
            self._closed or connection.is_busy or not self._is_usable(connection)
        ):
            connection.close()
            connection = None
        if self._waiting:
            self._waiting.popleft().set_result(connection)
        elif connection is None:
            self.open -= 1
        else:
            self._idle.append(connection)
