"""Owns wake-ups: a connection that is subscribed to a channel and checks that messages arrive.

They are hints; polling is the truth. While it cannot listen it says so, and waits end early. A
server that was demoted answers as before, but gets no messages: each probe asks for its role.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from windlass.core.errors import StoreError
from windlass.store.redis.connections.loop_connection import LoopConnection, LoopNetwork
from windlass.store.redis.connections.replies import (
    MOVED,
    ConnectionLost,
    NotMaster,
    ReplyError,
)
from windlass.store.redis.connections.script import pack

_PROBE_INTERVAL_SECONDS = 20.0
_PROBE_TIMEOUT_SECONDS = 5.0
_LISTEN_TIMEOUT_SECONDS = 10.0
_MAX_BACKOFF_SECONDS = 2.0
_SUBSCRIBED = (b"subscribe", b"ssubscribe")
_MESSAGES = (b"message", b"smessage")
_JOB = b"\1"
"""First byte of a message that brings a job; other messages begin with a time."""
_DEMOTED = "the server has become a replica"
_TALK = pack(("HELLO", "3"), in_cluster=False)
"""Allows commands on a connection that is subscribed."""
_PROBE = pack(("HELLO",), in_cluster=False)
"""Asks for the role; every user may send it."""


class Listener:
    """Receives the messages of one channel, on a connection of its own."""

    def __init__(self, network: LoopNetwork, channel: bytes) -> None:
        self._network = network
        self._channel = channel
        self._verb = "SSUBSCRIBE" if network.address.is_cluster else "SUBSCRIBE"
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: LoopConnection | None = None
        self._heard: asyncio.Future[Exception | None] | None = None
        self._is_subscribed = False
        self._failures = 0
        self.word = b""
        """The last message that was a hint."""
        self.on_job: Callable[[bytes], None] | None = None
        """Takes a message that brings a job, which is more than a hint."""
        self.mark = 0
        """Counts messages and changes; a wait for an older mark ends at once."""
        self.listening = False
        """Whether messages arrive, by the last probe."""
        self.trouble = ""
        """The reason why messages last failed to arrive."""

    @property
    def is_deaf(self) -> bool:
        """Whether the listener is meant to receive messages, and does not."""
        return self._failures > 0 and not self.listening

    def start(self) -> None:
        """Listen until `close`."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="windlass-listen")

    async def wait(self, mark: int, timeout: float) -> bytes | None:
        """Return the last message once one came after a mark, or None.

        None says to look for oneself: time is up, or messages have begun or ceased to arrive.
        """
        self.start()
        self._leave_former_master()
        if mark == self.mark:
            self.word = b""
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._bell.wait()
        return self.word or None

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self.close_now()

    def close_now(self) -> None:
        """Close the connection without waiting."""
        self.listening = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- the connection ------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except (ConnectionLost, StoreError, OSError, TimeoutError) as error:
                self.trouble = str(error) or "the server did not answer in time"
            self._failures += 1
            if self._connection is not None:
                self._network.topology.doubt(self._connection.endpoint)
            self.close_now()
            self._ring(b"")  # Sleepers are no longer woken, and must poll.
            longest: float = min(0.1 * 2 ** min(self._failures, 10), _MAX_BACKOFF_SECONDS)
            await asyncio.sleep(longest * random.uniform(0.5, 1))  # noqa: S311 - spreads load.

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        self._connection = await self._network.connect(loop.time() + _LISTEN_TIMEOUT_SECONDS)
        self._heard = loop.create_future()
        self._is_subscribed = False
        subscribe = pack((self._verb, self._channel), in_cluster=False)
        self._connection.listen(self._take, _TALK + subscribe)
        while True:
            await self._answered(_PROBE_TIMEOUT_SECONDS)
            if not self.listening:
                self.listening = True
                self._failures = 0
                self._ring(b"")  # Sleepers that could not be listed can be now.
            self._heard = loop.create_future()
            with suppress(TimeoutError):
                # Only a lost connection ends this early.
                await self._answered(_PROBE_INTERVAL_SECONDS)
            self._connection.write(_PROBE)

    async def _answered(self, timeout: float) -> None:
        assert self._heard is not None  # noqa: S101 - for the type checker.
        async with asyncio.timeout(timeout):
            error = await asyncio.shield(self._heard)
        if error is not None:
            raise error

    def _take(self, reply: object) -> None:
        """Take an input of the connection: a message, an answer, an error, or None at its end."""
        kind = reply[0] if isinstance(reply, list) else None
        if kind in _MESSAGES and isinstance(reply, list):
            self._hear_message(bytes(reply[2]))
        elif kind in _SUBSCRIBED:
            self._is_subscribed = True
            self._answer(None)
        elif isinstance(reply, dict):
            self._hear_role(reply.get(b"role"))
        elif isinstance(reply, ReplyError):
            if reply.code == MOVED:
                self._network.topology.moved(reply.endpoint)
            self._answer(ConnectionLost(str(reply), sent=False))
        else:  # SUNSUBSCRIBE says that the slot has moved away.
            self._answer(ConnectionLost("the server ended the subscription", sent=False))

    def _leave_former_master(self) -> None:
        """End the connection if another one has learnt that its server is a replica."""
        connection = self._connection
        if connection is not None and connection.term != self._network.topology.term:
            self._answer(NotMaster(_DEMOTED, sent=False))

    def _hear_role(self, role: object) -> None:
        if role != b"master":
            if self._connection is not None:
                self._network.topology.demoted(self._connection.term)
            self._answer(NotMaster(_DEMOTED, sent=False))
        elif self._is_subscribed:
            self._answer(None)

    def _hear_message(self, message: bytes) -> None:
        if message[:1] != _JOB:
            self._ring(message)
            return
        if self.on_job is not None:
            self.on_job(message)
        self._ring(b"")

    def _answer(self, error: Exception | None) -> None:
        if self._heard is None or self._heard.done():
            return
        self._heard.set_result(error)

    def _ring(self, word: bytes) -> None:
        self.mark += 1
        self.word = word
        self._bell.set()
        self._bell = asyncio.Event()
