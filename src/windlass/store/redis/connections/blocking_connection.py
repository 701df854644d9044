"""Owns a blocking connection, for threads: one call at a time, which ends at its deadline."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

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

_FIRST_BYTES = 4_096
"""Most replies are short. For more, the kernel maps memory, and takes it back, at each reply."""
_MORE_BYTES = 262_144


class BlockingConnection:
    """One connection, used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, sock: socket.socket, term: int = 0) -> None:
        self.endpoint = endpoint
        self.term = term
        """The term of the master in which it was opened."""
        self.closed = False
        self.idle_since = 0.0
        self._socket = sock
        self._is_plain = not isinstance(sock, ssl.SSLSocket)
        self._limit = 0.0
        self._reader = hiredis.Reader(replyError=reply_error)
        if self._is_plain:
            sock.settimeout(None)

    @property
    def is_stale(self) -> bool:
        """Whether the server closed it, or sent unexpected data, while it was idle."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poller.poll(0))

    def send(self, packed: bytes, count: int, deadline: float) -> list[object]:
        """Send commands, and return their replies.

        Raises:
            ConnectionLost: they did not come by the deadline; the connection is closed.
        """
        sent = False
        try:
            self._set_limit(deadline)
            sent = True
            self._socket.sendall(packed)
            return self._replies(count, deadline)
        except OSError as error:
            self.close()
            raise ConnectionLost(reason_of(error, self.endpoint), sent=sent) from error
        except hiredis.HiredisError as error:
            self.close()
            reason = f"{self.endpoint} does not speak the protocol of Redis ({error})"
            raise ConnectionLost(reason, sent=sent) from error
        except BaseException:
            self.close()  # A KeyboardInterrupt, in the middle of replies.
            raise

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._socket.close()

    def _replies(self, count: int, deadline: float) -> list[object]:
        gets, replies = self._reader.gets, []
        size = _FIRST_BYTES
        while True:
            while (reply := gets()) is not False:
                replies.append(reply)
                if len(replies) == count:
                    return replies
            data = self._socket.recv(size)
            if not data:
                raise ConnectionResetError(0, "the server closed the connection")
            if len(data) == size:
                size = _MORE_BYTES
            self._reader.feed(data)
            if self._reader.has_data():
                self._set_limit(deadline)

    def _set_limit(self, deadline: float) -> None:
        """Let the next wait end by the deadline, or a little later.

        By the kernel, and seldom changed: Python's own timeouts take a poll for each wait.
        """
        left = _left(deadline)
        if not self._is_plain:
            self._socket.settimeout(left)
        elif not left * 0.9 <= self._limit <= left * 1.1:
            self._limit = left
            limit = timeval(left)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def timeval(seconds: float) -> bytes:
    """Return seconds as a `struct timeval`, rounded up: zero would be a wait without an end."""
    whole, micros = divmod(int(seconds * 1_000_000) + 1, 1_000_000)
    return struct.pack("ll", whole, micros)


class BlockingNetwork:
    """Opens connections for threads: to the master, or to a server that knows the master."""

    def __init__(self, address: RedisAddress, topology: Topology) -> None:
        self.address = address
        self.topology = topology

    def connect(self, deadline: float) -> BlockingConnection:
        """Connect to the master, wherever it is.

        Raises:
            ConnectionLost: it cannot be found, or reached, by the deadline.
            StoreError: the server refuses the login, or cannot be used.
        """
        endpoint = self._master(deadline)
        try:
            return self.open(endpoint, deadline)
        except ConnectionLost:
            self.topology.doubt(endpoint)
            raise

    def open(self, endpoint: Endpoint, deadline: float) -> BlockingConnection:
        """Connect to one server that has the keys, or some of them."""
        soon = min(time.monotonic() + CONNECT_SECONDS, deadline)
        with self._connected(endpoint, soon) as connection:
            check_server(_said(connection, greeting(self.address), soon), self.address)
        return connection

    def _master(self, deadline: float) -> Endpoint:
        search = self.topology.search()
        try:
            question = next(search)
            while True:
                try:
                    reply = self._ask(question.endpoint, question.command, deadline)
                except (ConnectionLost, StoreError) as error:
                    question = search.throw(error)
                else:
                    question = search.send(reply)
        except StopIteration as end:
            endpoint: Endpoint = end.value
            return endpoint

    def _ask(self, endpoint: Endpoint, command: Command, deadline: float) -> object:
        soon = min(time.monotonic() + CONNECT_SECONDS, deadline)
        with self._connected(endpoint, soon) as connection:
            if self.address.master_name is None:
                check_login(_said(connection, greeting(self.address), soon), self.address)
            else:
                self._greet_sentinel(connection, soon)
            reply = _said(connection, [command], soon)[0]
        connection.close()
        return reply

    def _greet_sentinel(self, connection: BlockingConnection, deadline: float) -> None:
        replies = _said(connection, sentinel_greeting(self.address, login=False), deadline)
        if wants_login(replies):
            replies = _said(connection, sentinel_greeting(self.address, login=True), deadline)
        check_sentinel(replies, self.address)

    @contextmanager
    def _connected(self, endpoint: Endpoint, deadline: float) -> Iterator[BlockingConnection]:
        term = self.topology.term
        try:
            connection = BlockingConnection(endpoint, self._socket(endpoint, deadline), term)
        except OSError as error:
            if (refusal := refused(error, endpoint, self.address)) is not None:
                raise refusal from error
            raise ConnectionLost(reason_of(error, endpoint), sent=False) from error
        try:
            yield connection
        except ConnectionLost as error:
            connection.close()
            raise ConnectionLost(str(error), sent=False) from error
        except BaseException:
            connection.close()
            raise

    def _socket(self, endpoint: Endpoint, deadline: float) -> socket.socket:
        tls = tls_context(self.address.tls)
        if endpoint.port:
            sock = socket.create_connection(endpoint, timeout=_left(deadline))
        else:
            sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(_left(deadline))
            if not endpoint.port:
                sock.connect(endpoint.host)
                return sock
            prepare(sock)
            return sock if tls is None else tls.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise


def _said(connection: BlockingConnection, commands: list[Command], deadline: float) -> list[object]:
    packed = pack_all(commands, in_cluster=False)
    return connection.send(packed, len(commands), deadline)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
