"""Owns a Redis Cluster for tests: masters with a replica each, slots that move, and failovers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import hiredis

from tests.support.redis_server import PATIENCE, RedisServer

SLOTS = 16384


class RedisCluster:
    """Three masters, each with a third of the slots, and a replica for each."""

    def __init__(
        self,
        directory: Path,
        *,
        masters: int = 3,
        server: Path | None = None,
        **config: str | int,
    ) -> None:
        self._stack = ExitStack()
        common: dict[str, Any] = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": 1000,
            "cluster_slave_validity_factor": 0,
            "repl_diskless_sync_delay": 0,
        }
        nodes = [
            RedisServer(directory / str(n), server=server, **common | config)
            for n in range(2 * masters)
        ]
        self.masters, self.replicas = nodes[:masters], nodes[masters:]

    def __enter__(self) -> Self:
        for node in self.nodes:
            self._stack.enter_context(node)
        bounds = [SLOTS * n // len(self.masters) for n in range(len(self.masters) + 1)]
        for n, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for n, master in enumerate(self.masters):
            master.call("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
        for node in self.nodes[1:]:
            node.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        self._wait(lambda: all(self._knows_all(node) for node in self.nodes), "a cluster")
        for master, replica in zip(self.masters, self.replicas, strict=True):
            replica.call("CLUSTER", "REPLICATE", node_id(master))
        self._wait(self._is_replicated, "replicas")
        self._wait(lambda: all(map(_is_ok, self.nodes)), "slots")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def nodes(self) -> list[RedisServer]:
        """Masters and replicas."""
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        """The URL that names the masters."""
        hosts = ",".join(f"127.0.0.1:{master.port}" for master in self.masters)
        return f"redis+cluster://{hosts}"

    def owner(self, slot: int) -> RedisServer:
        """Return the master of a slot, as a node that answers sees it."""
        for node in self.nodes:
            try:
                reply = node.call("CLUSTER", "SLOTS")
            except OSError:
                continue
            for first, last, master, *_ in reply:
                if first <= slot <= last:
                    return self.at(master[1])
        raise AssertionError(f"slot {slot} has no master")

    def at(self, port: int) -> RedisServer:
        """Return the node with a port."""
        return next(node for node in self.nodes if node.port == port)

    def replica_of(self, master: RedisServer) -> RedisServer:
        """Return the replica of a master, as the cluster was made."""
        return self.replicas[self.masters.index(master)]

    def begin_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Announce that a slot moves: from now on the source answers ASK for missing keys."""
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))

    def move_keys(
        self, slot: int, source: RedisServer, target: RedisServer, *, most: int = 1_000_000
    ) -> int:
        """Move keys of a slot, some after others; return how many."""
        moved = 0
        with source.client() as run:
            while moved < most and (
                keys := run("CLUSTER", "GETKEYSINSLOT", slot, min(most - moved, 10))
            ):
                run("MIGRATE", "127.0.0.1", target.port, "", 0, 30_000, "KEYS", *keys)
                moved += len(keys)
        return moved

    def end_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Give the slot to the target, and wait until all nodes know it."""
        for node in (target, source, *self.masters):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))
        self._wait(lambda: self.owner(slot) is target, "the slot's new master")

    def _knows_all(self, node: RedisServer) -> bool:
        return len(node.call("CLUSTER", "NODES").decode().strip().splitlines()) == len(self.nodes)

    def _is_replicated(self) -> bool:
        return all(
            b"master_link_status:up" in replica.call("INFO", "replication")
            for replica in self.replicas
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if condition():
                    return
            except hiredis.ReplyError:
                pass  # Not yet.
            assert time.monotonic() < deadline, f"{what} did not come about"
            time.sleep(0.02)


def node_id(node: RedisServer) -> str:
    """Return the id that a node has in its cluster."""
    name: str = node.call("CLUSTER", "MYID").decode()
    return name


def _is_ok(node: RedisServer) -> bool:
    return b"cluster_state:ok" in node.call("CLUSTER", "INFO")
