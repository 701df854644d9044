"""Gives tests a server, and each way to run commands on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.redis_server import RedisServer
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.script import Command
from windlass.store.redis.connections.servers.urls import parse

WAYS = ("hot", "pool", "blocking")


class Run(Protocol):
    """Runs commands, and returns the replies."""

    async def __call__(self, *commands: Command, **options: Any) -> list[Any]: ...


class Ways:
    """Makes connections to a URL, and runs commands one way: that of the test's parameter."""

    def __init__(self, way: str) -> None:
        self._way = way

    @asynccontextmanager
    async def to(self, url: str) -> AsyncIterator[Run]:
        """Give a function that runs commands."""
        connections = RedisConnections(parse(url))

        async def run(*commands: Command, **options: Any) -> list[Any]:
            here = connections.here()
            if self._way == "blocking":
                return await asyncio.to_thread(connections.blocking.run, *commands, **options)
            return await getattr(here, self._way).run(*commands, **options)  # type: ignore[no-any-return]

        try:
            yield run
        finally:
            await connections.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server that keeps every write on disk."""
    with RedisServer(tmp_path / "server", appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture(params=WAYS)
def ways(request: pytest.FixtureRequest) -> Ways:
    """Give each way to run commands."""
    return Ways(request.param)
