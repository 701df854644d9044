"""Owns one call from its first attempt to its last: what is sent again, and what is known then.

It neither reads nor writes; the loop's connections and the blocking ones do, each in its way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from windlass.core.errors import StoreUnavailable, WindlassError, WriteUncertain
from windlass.store.redis.connections.replies import (
    ASK,
    FROM_REPLICA,
    LOOK_AGAIN,
    MOVED,
    SEND_AGAIN,
    UNKNOWN_SCRIPT,
    ConnectionLost,
    ReplyError,
    translate,
)
from windlass.store.redis.connections.script import Command, is_write, pack
from windlass.store.redis.connections.servers.topology import Topology
from windlass.store.redis.connections.servers.urls import Endpoint, RedisAddress

_FIRST_PAUSE_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 0.5
_MAX_REFUSED_CONNECTIONS = 6
"""Attempts after which a single server that refuses connections counts as unreachable."""
_ASKING = b"*1\r\n$6\r\nASKING\r\n"
_PENDING: object = object()


class Connected(Protocol):
    """A connection: the server that it leads to, and the term in which it was opened."""

    endpoint: Endpoint
    term: int


class Conversation:
    """The commands of one call, the state of each, and the next attempt."""

    __slots__ = (
        "_address",
        "_again",
        "_attempts",
        "_commands",
        "_deadline",
        "_last",
        "_replicas",
        "_replies",
        "_sent",
        "_timeout",
        "_topology",
        "_uncertain",
        "_whole",
        "redirect",
    )

    def __init__(
        self,
        commands: Sequence[Command],
        topology: Topology,
        address: RedisAddress,
        *,
        now: float,
        timeout: float,
        again: bool,
        replicas: int = 0,
    ) -> None:
        self._commands = list(commands)
        self._topology = topology
        self._address = address
        self._timeout = timeout
        self._deadline = now + timeout
        self._again = again
        self._replicas = replicas
        if replicas:
            self._commands.append(("WAIT", replicas, 1))
        self._replies: list[object] = [_PENDING] * len(self._commands)
        self._sent: list[int] = []
        self._whole: set[int] = set()
        self._uncertain: set[int] = set()
        self._attempts = 0
        self._last: Exception | None = None
        self.redirect: Endpoint | None = None
        """The node that has the rest of a slot which is being moved, for the next attempt."""

    @property
    def deadline(self) -> float:
        """The deadline of the whole call."""
        return self._deadline

    def outgoing(self, now: float) -> tuple[bytes, int]:
        """Return the bytes to send, in one write, and the number of expected replies."""
        if self._replicas:
            # Less than the time that is left: the number of confirmations is an answer, too.
            wait_ms = max(int((self._deadline - now) * 800), 1)
            self._commands[-1] = ("WAIT", self._replicas, wait_ms)
        self._sent = [i for i, reply in enumerate(self._replies) if reply is _PENDING]
        in_cluster = self._address.is_cluster
        packed = [pack(self._commands[i], in_cluster, whole=i in self._whole) for i in self._sent]
        if self.redirect is None:
            return b"".join(packed), len(packed)
        return b"".join(_ASKING + each for each in packed), 2 * len(packed)

    def begun(
        self, replies: list[object] | None, trouble: ConnectionLost | None, by: Connected
    ) -> bool:
        """Take the result of an attempt that was made before this conversation existed."""
        self._sent = list(range(len(self._commands)))
        if trouble is not None:
            self.lost(trouble)
        return replies is not None and self.answered(replies, by)

    def answered(self, replies: list[object], by: Connected) -> bool:
        """Take the replies to the commands; return whether the call is done.

        Raises:
            StoreError: a command was refused for good.
            WriteUncertain: written, but not by as many replicas as it should.
        """
        if self.redirect is not None:
            self.redirect, replies = None, replies[1::2]
        self._last = None
        for i, reply in zip(self._sent, replies, strict=True):
            if not isinstance(reply, ReplyError):
                self._replies[i] = reply
                # Not by an error: that one says nothing about an attempt before it.
                self._uncertain.discard(i)
            elif reply.code == UNKNOWN_SCRIPT:
                self._whole.add(i)
            elif reply.code in SEND_AGAIN:
                self._last = reply
                self._redirected(reply, by)
            else:
                self._replies[i] = reply
        if _PENDING in self._replies:
            if self._replicas:
                self._replies[-1] = (
                    _PENDING  # WAIT counted the other commands, of which one is sent again now.
                )
            return False
        self._check()
        return True

    def lost(self, error: ConnectionLost) -> None:
        """Record that a connection broke, or could not be made."""
        self.redirect = None
        self._last = error
        if error.sent:
            self._uncertain.update(i for i in self._sent if is_write(self._commands[i]))

    def pause(self, now: float) -> float:
        """Return how long to wait before the next attempt.

        Raises:
            StoreUnavailable: there is none.
            WriteUncertain: there is none, and something may have been written.
        """
        if self._last is None:
            return 0.0  # A script to be sent whole.
        self._attempts += 1
        longest = min(_FIRST_PAUSE_SECONDS * 2 ** min(self._attempts, 10), _MAX_PAUSE_SECONDS)
        pause = 0.0 if self._is_redirect() else longest * random.uniform(0.5, 1)  # noqa: S311 - spreads load.
        if (
            (self._uncertain and not self._again)
            or self._is_away()
            or now + pause >= self._deadline
        ):
            raise self._error() from self._last
        return pause

    @property
    def replies(self) -> list[object]:
        """The reply to each command."""
        return self._replies[: len(self._replies) - 1] if self._replicas else self._replies

    def _redirected(self, reply: ReplyError, by: Connected) -> None:
        endpoint = by.endpoint
        if reply.code in FROM_REPLICA:
            self._topology.demoted(by.term)
        if reply.code == ASK:
            self.redirect = _absolute(reply.endpoint, endpoint)
        elif reply.code == MOVED:
            self._topology.moved(_absolute(reply.endpoint, endpoint))
        elif reply.code in LOOK_AGAIN:
            self._topology.doubt(endpoint)

    def _is_redirect(self) -> bool:
        # The first redirection is followed at once; if nodes disagree, they get time to settle.
        return (
            self._attempts < 3
            and isinstance(self._last, ReplyError)
            and self._last.code in (MOVED, ASK)
        )

    def _is_away(self) -> bool:
        return (
            isinstance(self._last, ConnectionLost)
            and not self._topology.can_move
            and self._attempts >= _MAX_REFUSED_CONNECTIONS
        )

    def _error(self) -> WindlassError:
        last = self._last
        error: WindlassError
        if isinstance(last, ReplyError):
            error = translate(last, self._address.location)
        else:
            error = StoreUnavailable(f"{self._address.location}: {last}")
        return WriteUncertain(str(error)) if self._uncertain or self._is_partly_done() else error

    def _is_partly_done(self) -> bool:
        pairs = zip(self._commands, self._replies, strict=True)
        return any(
            reply is not _PENDING and not isinstance(reply, ReplyError) and is_write(command)
            for command, reply in pairs
        )

    def _check(self) -> None:
        for reply in self._replies:
            if isinstance(reply, ReplyError):
                error = translate(reply, self._address.location)
                raise WriteUncertain(str(error)) if self._uncertain else error from reply
        confirmed = self._replies[-1] if self._replicas else 0
        if self._replicas and isinstance(confirmed, int) and confirmed < self._replicas:
            raise WriteUncertain(
                f"{self._address.location}: {confirmed} of {self._replicas} replicas confirmed the "
                f"write in {self._timeout:g} s; see INFO replication, or lower wait_replicas"
            )


def _absolute(endpoint: Endpoint, asked: Endpoint) -> Endpoint:
    """Return the node of a redirection; without a host it is on that of the node that answered."""
    return endpoint if endpoint.host else Endpoint(asked.host, endpoint.port)
