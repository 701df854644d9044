"""Owns the search for the master of the keys: which server to ask, and how to read its answer."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from windlass.core.errors import StoreError, StoreRefused
from windlass.store.redis.connections.replies import ConnectionLost, ReplyError
from windlass.store.redis.connections.script import Command
from windlass.store.redis.connections.servers.urls import Endpoint, RedisAddress

_MAX_NODES = 64


class Question(NamedTuple):
    """A command for a server that may know the master; its reply is sent back."""

    endpoint: Endpoint
    command: Command


Search = Generator[Question, object, Endpoint]
"""Asks one question after another, each answered by `send` or `throw`, and returns the master."""


class Topology:
    """Where the master is, as far as this process knows; shared by all of its connections."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._advisers = list(address.hosts)
        is_one = address.master_name is None and not address.is_cluster
        self._fixed = address.hosts[0] if is_one else None
        self.master = self._fixed
        """The address of the master; None if it is unknown."""
        self.term = 0
        """Number of times that a server which was taken for the master said that it is a replica.

        Connections belong to the term in which they were opened: a server that is demoted keeps
        its address, and its connections, and none of them can write any more.
        """

    @property
    def can_move(self) -> bool:
        """Whether the master may change."""
        return self._fixed is None

    def doubt(self, endpoint: Endpoint) -> None:
        """Search for the master again before the next connection, if this was its address."""
        if self.master == endpoint:
            self.master = self._fixed

    def is_current(self, endpoint: Endpoint, term: int) -> bool:
        """Return whether a connection leads to the master, as far as this process knows."""
        return endpoint == self.master and term == self.term

    def demoted(self, term: int) -> None:
        """Let go of all connections of a term, since the server of one of them is a replica."""
        if self.term == term:
            self.term = term + 1

    def moved(self, endpoint: Endpoint) -> None:
        """Record what a node of the cluster says about its former slot."""
        if self._fixed is None:
            self.master = endpoint

    def search(self) -> Search:
        """Find the master.

        Raises:
            ConnectionLost: no server that knows the master answers.
            StoreRefused: servers answer, but know no such master.
        """
        if self.master is not None:
            return self.master
        trouble: Exception = ConnectionLost("no server answers", sent=False)
        for adviser in tuple(self._advisers):
            try:
                reply = yield Question(adviser, self._question())
                master = self._read(reply, adviser)
            except (ConnectionLost, StoreError) as error:
                trouble = error
                continue
            others = [each for each in self._advisers if each != adviser]
            self._advisers = [adviser, *others]  # Assigned in one step: other threads read it, too.
            self.master = master
            return master
        raise trouble

    def _question(self) -> Command:
        name = self._address.master_name
        return (
            ("CLUSTER", "SLOTS") if name is None else ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
        )

    def _read(self, reply: object, adviser: Endpoint) -> Endpoint:
        if isinstance(reply, ReplyError) and "cluster support disabled" in str(reply):
            raise StoreRefused(
                f"{self._address.location}: {adviser} must be a node of a cluster, got a server "
                "alone; use redis://"
            )
        if isinstance(reply, ReplyError):
            raise ConnectionLost(f"{adviser}: {reply}", sent=False)
        if self._address.master_name is None:
            return self._owner(reply, adviser)
        if not isinstance(reply, list):
            raise StoreRefused(
                f"{self._address.location}: the sentinel {adviser} knows of no master "
                f"{self._address.master_name!r}; check the name in the URL"
            )
        return Endpoint(_text(reply[0]), int(_text(reply[1])))

    def _owner(self, reply: object, adviser: Endpoint) -> Endpoint:
        """Return the master of the slot, and remember the other nodes for the next search."""
        owner = None
        for first, last, master, *replicas in reply if isinstance(reply, list) else ():
            nodes = [_node(each, adviser) for each in (master, *replicas)]
            self._learn([node for node in nodes if node is not None])
            if first <= self._address.slot <= last:
                owner = nodes[0]
        if owner is None:
            raise ConnectionLost(f"{adviser}: slot {self._address.slot} has no master", sent=False)
        return owner

    def _learn(self, nodes: list[Endpoint]) -> None:
        for node in nodes:
            if node not in self._advisers and len(self._advisers) < _MAX_NODES:
                self._advisers.append(node)


def _node(entry: list[object], adviser: Endpoint) -> Endpoint | None:
    """Return a node of CLUSTER SLOTS; an empty host stands for the one that was asked."""
    host = "" if entry[0] is None else _text(entry[0])
    return None if host == "?" else Endpoint(host or adviser.host, int(_text(entry[1])))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
