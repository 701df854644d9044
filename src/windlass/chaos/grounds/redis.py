"""Owns chaos on Redis: a primary and a replica of its own, or a prefix on a user's server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from windlass.chaos.grounds.ground import Ground, is_plain_host, refuse_full
from windlass.chaos.grounds.redis_server import RedisServer, call
from windlass.chaos.plan import FaultKind
from windlass.chaos.proxy import Proxy
from windlass.core.errors import ConfigError
from windlass.settings.url_masking import redact_url

_PREFIX = "windlass-chaos"


class RedisGround(Ground):
    """A server whose keys of one prefix are for chaos alone.

    Of chaos's own servers one is the primary, and the other its replica, which confirms every
    enqueue and every outcome. Two proxies lead to the primary, as the endpoint of a managed
    service does: one that faults break, and one for the observer.
    """

    name = "redis"
    settings = {"max_finished": "10000000"}  # noqa: RUF012 - The laws need every outcome.

    def __init__(self, directory: Path, url: str = "") -> None:
        super().__init__()
        self._given = url
        self._directory = directory
        self._servers: list[RedisServer] = []
        """The primary, then its replica."""
        self._endpoint: Proxy | None = None
        self._owns_keys = False
        self._without("Redis has no sessions in a database", FaultKind.TERMINATE_BACKENDS)
        self._without("chaos fills no disk of a Redis", FaultKind.FILL_DISK)
        self._without("scripts read the clock of the server's machine", FaultKind.STEP_CLOCK)

    async def prepare(self) -> None:
        if self._given:
            self._use_given()
        else:
            await self._start_servers()
        if await asyncio.to_thread(self._keys):
            raise refuse_full(
                f"there are keys that begin with {{{_PREFIX}}}:", "delete what an earlier run left"
            )
        self._owns_keys = True
        if self.proxy is None:
            await self._start_proxy(6379)

    async def close(self) -> None:
        if self._owns_keys and not self._servers:
            await asyncio.to_thread(self._remove_keys)
        for proxy in (self.proxy, self._endpoint):
            if proxy is not None:
                await proxy.close()
        for server in self._servers:
            server.kill()

    async def restart(self, pause: float) -> None:
        primary, replica = self._servers
        primary.kill()
        await asyncio.sleep(pause)
        primary.spawn()
        await asyncio.to_thread(primary.wait_until_ready)
        await asyncio.to_thread(replica.wait_until_replica)

    async def fail_over(self, pause: float) -> None:
        await self.promote_replica()
        await asyncio.sleep(pause)
        await self.replace_primary()

    async def promote_replica(self) -> None:
        """Promote the replica; clients still write to the primary, which loses that."""
        _, replica = self._servers
        await asyncio.to_thread(replica.wait_until_replica)
        await asyncio.to_thread(replica.promote)

    async def replace_primary(self) -> None:
        """Kill the primary, and lead clients to the promoted replica, which it follows then."""
        former, replica = self._servers
        former.kill()
        self._servers = [replica, former]
        for proxy in (self.proxy, self._endpoint):
            if proxy is not None:
                proxy.lead_to(replica.port)
        # What only the former primary knew, it forgets when it follows the new one.
        former.spawn(replica)
        await asyncio.to_thread(former.wait_until_replica)

    def _use_given(self) -> None:
        if not is_plain_host(self._given):
            raise ConfigError(
                f"--url must be redis://host:port, got {redact_url(self._given)}; chaos does "
                "not run on TLS, sockets, Sentinel or Cluster"
            )
        self._without("it is your server", FaultKind.RESTART_SERVER, FaultKind.FAIL_OVER)
        mark = "&" if urlsplit(self._given).query else "?"
        self.url = f"{self._given}{mark}prefix={_PREFIX}"

    async def _start_servers(self) -> None:
        primary, replica = (RedisServer(self._directory, f"redis-{name}") for name in "ab")
        self._servers = [primary, replica]
        primary.spawn()
        replica.spawn(primary)
        await asyncio.to_thread(replica.wait_until_replica)
        self.proxy, self._endpoint = (Proxy("127.0.0.1", primary.port) for _ in "ab")
        await self.proxy.start()
        await self._endpoint.start()
        self.url = f"redis://127.0.0.1:{self._endpoint.port}?prefix={_PREFIX}&wait_replicas=1"

    def _keys(self) -> list[bytes]:
        found: list[bytes] = []
        cursor: bytes | int = 0
        while True:
            scan = ("SCAN", cursor, "MATCH", f"{{{_PREFIX}}}:*", "COUNT", 1000)
            ((cursor, keys),) = call(self.url, [scan])
            found += keys
            if int(cursor) == 0:
                return found

    def _remove_keys(self) -> None:
        while keys := self._keys():
            pieces = [keys[start : start + 500] for start in range(0, len(keys), 500)]
            call(self.url, [("UNLINK", *piece) for piece in pieces])
