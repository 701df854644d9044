"""In a cluster of three masters every law holds: all keys of an app are on one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.redis_cluster import RedisCluster
from tests.support.redis_fixtures import CLOCK, ClockedRedis
from windlass.store.redis import RedisStore
from windlass.store.redis.connections.servers.urls import parse
from windlass.store.redis.scripting.script_files import load_scripts
from windlass.testing.conformance import Bench, laws_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_every_law_holds_in_a_cluster(tmp_path: Path) -> None:
    with RedisCluster(tmp_path) as cluster:
        prefix = "laws"
        url = f"{cluster.url}?prefix={prefix}"
        owner = cluster.owner(parse(url).slot)
        with owner.client() as run:
            clocked = ClockedRedis(owner, run, prefix=prefix)

            @asynccontextmanager
            async def opened() -> AsyncIterator[RedisStore]:
                store = RedisStore(url, scripts=load_scripts(sharded=True, clock=CLOCK))
                try:
                    yield store
                finally:
                    await store.close()

            @asynccontextmanager
            async def open_bench() -> AsyncIterator[Bench]:
                clocked.empty()
                async with opened() as store:
                    yield Bench(store, clocked, sibling=opened)

            for law in laws_for(RedisStore.capabilities):
                asyncio.run(law.check(open_bench))
