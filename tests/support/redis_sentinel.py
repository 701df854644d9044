"""Owns a master with replicas and the sentinels that watch them, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.support.redis_server import PATIENCE, RedisServer

MASTER = "shop"


class RedisSentinels:
    """A master, a replica, and three sentinels, two of which suffice for a failover."""

    def __init__(self, directory: Path, **config: str | int) -> None:
        self._stack = ExitStack()
        self._directory = directory
        common: dict[str, Any] = {"repl_diskless_sync_delay": 0}
        self.servers = [RedisServer(directory / name, **common | config) for name in ("a", "b")]
        self.sentinels: list[RedisServer] = []

    def __enter__(self) -> Self:
        master, replica = self.servers
        self._stack.enter_context(master)
        self._stack.enter_context(replica)
        replica.call("REPLICAOF", "127.0.0.1", master.port)
        self._wait(lambda: b"master_link_status:up" in replica.call("INFO", "replication"))
        for n in range(3):
            directory = self._directory / f"sentinel{n}"
            directory.mkdir(parents=True)
            config = directory / "sentinel.conf"
            config.write_text(
                f"sentinel monitor {MASTER} 127.0.0.1 {master.port} 2\n"
                # Not less: on a busy machine a master that lives would be failed over as well.
                f"sentinel down-after-milliseconds {MASTER} 2000\n"
                f"sentinel failover-timeout {MASTER} 3000\n"
            )
            sentinel = RedisServer(directory, arguments=(str(config), "--sentinel"), is_plain=False)
            self.sentinels.append(self._stack.enter_context(sentinel))
        for sentinel in self.sentinels:
            self._wait(partial(self._is_ready, sentinel))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The URL that names the sentinels and the master."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{MASTER}"

    @property
    def master(self) -> RedisServer:
        """The server that the first sentinel that answers takes for the master."""
        for master in self._masters():
            return master
        raise AssertionError("no sentinel answers")

    def wait_for_failover(self, former: RedisServer) -> None:
        """Wait until every sentinel has another master."""
        self._wait(lambda: former not in list(self._masters()))

    def wait_for_replica(self, server: RedisServer) -> None:
        """Wait until a server has all that the master has: before that, it must not succeed it."""
        self._wait(lambda: self._follows(server))

    def _follows(self, server: RedisServer) -> bool:
        try:
            return b"master_link_status:up" in server.call("INFO", "replication")
        except OSError:  # A server that becomes a replica closes its connections.
            return False

    def _masters(self) -> Iterator[RedisServer]:
        """Yield the master of each sentinel that answers."""
        for sentinel in self.sentinels:
            try:
                _, port = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
            except OSError:
                continue
            yield next(server for server in self.servers if server.port == int(port))

    def _is_ready(self, sentinel: RedisServer) -> bool:
        reply = sentinel.call("SENTINEL", "MASTER", MASTER)
        about = dict(zip(reply[::2], reply[1::2], strict=True))
        return (about[b"num-slaves"], about[b"num-other-sentinels"]) == (b"1", b"2")

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "the sentinels did not agree"
            time.sleep(0.02)
