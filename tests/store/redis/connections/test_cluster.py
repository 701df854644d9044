"""In a cluster all keys are in one slot, which is found, and followed wherever it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.store.redis.connections.conftest import Run, Ways
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer
from windlass.core.errors import StoreRefused
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.script import Script
from windlass.store.redis.connections.servers.urls import parse

KEY = b"{windlass}:"
SLOT = parse("redis+cluster://any").slot
TWO = Script.of(
    "two",
    """#!lua
local one, two = redis.call('INCR', KEYS[1] .. 'one'), redis.call('INCR', KEYS[1] .. 'two')
if one ~= two then return redis.error_reply('SPLIT ' .. one .. ' and ' .. two) end
return one""",
)
"""Two counters, which are equal unless a script saw one of them only."""
PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Give a cluster of three masters and three replicas."""
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Give a cluster that a test may break."""
    with RedisCluster(tmp_path) as cluster:
        yield cluster


def other(cluster: RedisCluster, owner: RedisServer) -> RedisServer:
    return next(master for master in cluster.masters if master is not owner)


class Load:
    """Counts as fast as it can, and keeps what it was answered."""

    def __init__(self, run: Run, **options: Any) -> None:
        self.counts: list[int] = []
        self._run = run
        self._options = options
        self._over = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await self._task

    async def more(self, number: int) -> None:
        """Wait until it has been answered this number of times more."""
        wanted = len(self.counts) + number
        async with asyncio.timeout(PATIENCE):
            while len(self.counts) < wanted:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    async def _count(self) -> None:
        while not self._over:
            self.counts += await self._run((TWO, KEY), timeout=PATIENCE, **self._options)


def test_the_node_of_the_slot_is_found_whichever_node_is_asked(
    cluster: RedisCluster, ways: Ways
) -> None:
    async def test() -> None:
        for node in cluster.nodes:
            url = node.url.replace("redis://", "redis+cluster://")
            async with ways.to(url) as run:
                await run(("SET", KEY + b"a", node.port))
                assert cluster.owner(SLOT).call("GET", KEY + b"a") == b"%d" % node.port

    asyncio.run(test())


def test_a_node_of_a_cluster_is_not_taken_for_a_server_alone(
    cluster: RedisCluster, ways: Ways, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ways.to(cluster.masters[0].url) as run:
            with pytest.raises(StoreRefused, match=r"cluster mode; use redis\+cluster://"):
                await run((TWO, KEY))
        with RedisServer(tmp_path) as alone:
            url = alone.url.replace("redis://", "redis+cluster://")
            async with ways.to(url) as run:
                with pytest.raises(
                    StoreRefused, match=r"must be a node of a cluster.*; use redis://"
                ):
                    await run((TWO, KEY))

    asyncio.run(test())


@pytest.mark.long
def test_scripts_never_see_half_of_a_slot_that_is_being_moved(
    cluster: RedisCluster, ways: Ways
) -> None:
    async def test() -> None:
        source = cluster.owner(SLOT)
        target = other(cluster, source)
        async with ways.to(cluster.url) as run:
            await run(*[("SET", KEY + b"x%d" % n, n) for n in range(100)])
            first = (await run((TWO, KEY)))[0]
            async with Load(run) as load:
                await load.more(20)
                await asyncio.to_thread(cluster.begin_move, SLOT, source, target)
                for _ in range(4):
                    await asyncio.to_thread(cluster.move_keys, SLOT, source, target, most=20)
                    # Keys are found on either side meanwhile, one by one.
                    for n in (0, 50, 99):
                        key = KEY + b"x%d" % n
                        assert await run(("GET", key), timeout=PATIENCE) == [b"%d" % n]
                await asyncio.to_thread(cluster.move_keys, SLOT, source, target)
                await asyncio.to_thread(cluster.end_move, SLOT, source, target)
                await load.more(20)
            assert load.counts == list(range(first + 1, first + 1 + len(load.counts)))
        assert cluster.owner(SLOT) is target

    asyncio.run(test())


@pytest.mark.long
def test_a_replica_takes_over_and_is_found(own_cluster: RedisCluster, ways: Ways) -> None:
    async def test() -> None:
        master = own_cluster.owner(SLOT)
        async with ways.to(own_cluster.url) as run, Load(run, again=True) as load:
            await load.more(20)
            await asyncio.to_thread(master.kill)
            await load.more(20)
        assert own_cluster.owner(SLOT) is own_cluster.replica_of(master)
        # What is acknowledged need not be on a replica without WAIT; no count comes twice after it.
        assert load.counts[-20:] == sorted(set(load.counts[-20:]))

    asyncio.run(test())


@pytest.mark.long
def test_the_listener_follows_the_slot(cluster: RedisCluster) -> None:
    async def test() -> None:
        connections = RedisConnections(parse(cluster.url))
        here = connections.here()
        channel = KEY + b"wake:" + here.sleeper.encode()

        async def hears() -> None:
            heard = None
            while heard is None:
                mark = here.listener.mark
                await here.run(("SPUBLISH", channel, "hello"), timeout=PATIENCE)
                heard = await here.listener.wait(mark, 0.2)
            assert heard == b"hello"

        async with asyncio.timeout(PATIENCE):
            await hears()
            source = cluster.owner(SLOT)
            target = other(cluster, source)
            await asyncio.to_thread(cluster.begin_move, SLOT, source, target)
            await asyncio.to_thread(cluster.move_keys, SLOT, source, target)
            await asyncio.to_thread(cluster.end_move, SLOT, source, target)
            await hears()
        await connections.close()

    asyncio.run(test())
