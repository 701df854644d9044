"""Owns a connection of an event loop: many calls may be under way, each with its deadline.

Replies come in the order of the commands. So a call whose caller has gone is waited for all the
same, and one whose time is up takes the connection with it: what would come later is unknown.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast

import hiredis

from windlass.core.errors import StoreError
from windlass.store.redis.connections.replies import ConnectionLost, reply_error
from windlass.store.redis.connections.script import Command, pack_all
from windlass.store.redis.connections.servers.handshake import (
    check_login,
    check_sentinel,
    check_server,
    greeting,
    sentinel_greeting,
    wants_login,
)
from windlass.store.redis.connections.servers.sockets import (
    CONNECT_SECONDS,
    prepare,
    reason_of,
    refused,
    tls_context,
)
from windlass.store.redis.connections.servers.topology import Topology
from windlass.store.redis.connections.servers.urls import Endpoint, RedisAddress

_LATE = "the server did not answer in time"
_GONE = "the server closed the connection"
_BUFFER_BYTES = 65_536


class _Call:
    """Replies that are expected together, their deadline, and the future that waits for them."""

    __slots__ = ("count", "deadline", "future", "replies")

    def __init__(self, count: int, deadline: float, future: asyncio.Future[list[object]]) -> None:
        self.count = count
        self.deadline = deadline
        self.future = future
        self.replies: list[object] = []


class LoopConnection(asyncio.BufferedProtocol):
    """One connection, used by one event loop.

    It has a buffer of its own: asyncio would allocate 256 kB for each read.
    """

    def __init__(self, endpoint: Endpoint, term: int = 0) -> None:
        self.endpoint = endpoint
        self.term = term
        """The term of the master in which it was opened."""
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=reply_error)
        # Not a bytearray: asyncio's TLS writes into a slice of it, which would be a copy.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._calls: deque[_Call] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._on_message: Callable[[object], None] | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_busy(self) -> bool:
        """Whether replies to a cancelled call are still expected."""
        return bool(self._calls)

    def send(self, packed: bytes, count: int, deadline: float) -> asyncio.Future[list[object]]:
        """Send commands in one write, and return a future with their replies.

        The future raises ConnectionLost if they do not come by the deadline, a time of the loop.
        """
        future: asyncio.Future[list[object]] = self._loop.create_future()
        if self.closed or self._transport is None:
            future.set_exception(ConnectionLost(_GONE, sent=False))
            return future
        self._calls.append(_Call(count, deadline, future))
        if (deadline < self._alarm_at or self._alarm is None) and deadline != math.inf:
            self._set_alarm(deadline)
        self._transport.write(packed)
        return future

    def listen(self, on_message: Callable[[object], None], packed: bytes) -> None:
        """Send a subscription; from now on `on_message` gets every input, and None at the end."""
        self._on_message = on_message
        self.write(packed)

    def write(self, packed: bytes) -> None:
        """Send a command whose answer, if any, is a message."""
        if self._transport is not None and not self.closed:
            self._transport.write(packed)

    def close(self, reason: str = _GONE) -> None:
        """Close the connection; the outcome of calls under way is unknown."""
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._abort()
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(ConnectionLost(reason, sent=True))

    def _abort(self) -> None:
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if not self._loop.is_closed():
            transport.abort()
        elif (sock := transport.get_extra_info("socket")) is not None:
            # A closed loop closes nothing: the server learns of it now, the rest is collected.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # -- asyncio.BufferedProtocol --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        prepare(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next data goes."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass replies to the calls that wait for them."""
        reader = self._reader
        try:
            reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # Any buffer.
            while (reply := reader.gets()) is not False:
                self._take(reply)
        except hiredis.HiredisError as error:
            self.close(f"the server does not speak the protocol of Redis ({error})")

    def connection_lost(self, error: Exception | None) -> None:
        """Let all callers know."""
        self.close(_GONE if error is None else f"{_GONE} ({error})")
        if self._on_message is not None:
            self._on_message(None)

    def _take(self, reply: object) -> None:
        if self._on_message is not None:
            self._on_message(reply)
            return
        if not self._calls:
            self.close("the server sent a reply that no command asked for")
            return
        call = self._calls[0]
        call.replies.append(reply)
        if len(call.replies) == call.count:
            self._calls.popleft()
            if not call.future.done():
                call.future.set_result(call.replies)

    # -- deadlines -----------------------------------------------------------------------------

    def _set_alarm(self, at: float) -> None:
        # One for all calls, seldom moved: one for each would take longer than the call's packing.
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self._calls:
            return
        first = min(call.deadline for call in self._calls)
        if first <= self._loop.time():
            self.close(_LATE)
        else:
            self._set_alarm(first)


class LoopNetwork:
    """Opens connections for an event loop: to the master, or to a server that knows the master."""

    def __init__(self, address: RedisAddress, topology: Topology) -> None:
        self.address = address
        self.topology = topology

    async def connect(self, deadline: float) -> LoopConnection:
        """Connect to the master, wherever it is.

        Raises:
            ConnectionLost: it cannot be found, or reached, by the deadline.
            StoreError: the server refuses the login, or cannot be used.
        """
        endpoint = await self._master(deadline)
        try:
            return await self.open(endpoint, deadline)
        except ConnectionLost:
            self.topology.doubt(endpoint)
            raise

    async def open(self, endpoint: Endpoint, deadline: float) -> LoopConnection:
        """Connect to one server that has the keys, or some of them."""
        async with self._until(deadline, endpoint):
            connection = await self._connected(endpoint)
            try:
                check_server(await _said(connection, greeting(self.address)), self.address)
            except BaseException:
                connection.close()
                raise
            return connection

    async def _master(self, deadline: float) -> Endpoint:
        search = self.topology.search()
        try:
            question = next(search)
            while True:
                try:
                    reply = await self._ask(question.endpoint, question.command, deadline)
                except (ConnectionLost, StoreError) as error:
                    question = search.throw(error)
                else:
                    question = search.send(reply)
        except StopIteration as end:
            endpoint: Endpoint = end.value
            return endpoint

    async def _ask(self, endpoint: Endpoint, command: Command, deadline: float) -> object:
        async with self._until(deadline, endpoint):
            connection = await self._connected(endpoint)
            try:
                if self.address.master_name is None:
                    check_login(await _said(connection, greeting(self.address)), self.address)
                else:
                    await self._greet_sentinel(connection)
                return (await _said(connection, [command]))[0]
            finally:
                connection.close()

    async def _greet_sentinel(self, connection: LoopConnection) -> None:
        replies = await _said(connection, sentinel_greeting(self.address, login=False))
        if wants_login(replies):
            replies = await _said(connection, sentinel_greeting(self.address, login=True))
        check_sentinel(replies, self.address)

    async def _connected(self, endpoint: Endpoint) -> LoopConnection:
        loop = asyncio.get_running_loop()
        make = partial(LoopConnection, endpoint, self.topology.term)
        if not endpoint.port:
            return (await loop.create_unix_connection(make, endpoint.host))[1]
        tls = tls_context(self.address.tls)
        return (await loop.create_connection(make, endpoint.host, endpoint.port, ssl=tls))[1]

    @asynccontextmanager
    async def _until(self, deadline: float, endpoint: Endpoint) -> AsyncIterator[None]:
        soon = asyncio.get_running_loop().time() + CONNECT_SECONDS
        try:
            async with asyncio.timeout_at(min(soon, deadline)):
                yield
        except OSError as error:
            if (refusal := refused(error, endpoint, self.address)) is not None:
                raise refusal from error
            raise ConnectionLost(reason_of(error, endpoint), sent=False) from error
        except ConnectionLost as error:
            raise ConnectionLost(f"{endpoint}: {error}", sent=False) from error


async def _said(connection: LoopConnection, commands: list[Command]) -> list[object]:
    packed = pack_all(commands, in_cluster=False)
    return await connection.send(packed, len(commands), math.inf)
