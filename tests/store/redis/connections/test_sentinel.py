"""Behind sentinels the master is found, and found again when it has changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.redis.connections.conftest import Ways
from tests.support.redis_sentinel import RedisSentinels
from windlass.core.errors import StoreRefused, StoreUnavailable, WriteUncertain
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.script import Script
from windlass.store.redis.connections.servers.urls import parse

KEY = b"{windlass}:"
ADD = Script.of("add", "#!lua\nreturn redis.call('SADD', KEYS[1] .. 'set', ARGV[1])")
PATIENCE = 60.0


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisSentinels]:
    """Give a master, a replica and three sentinels."""
    with RedisSentinels(tmp_path_factory.mktemp("sentinels")) as sentinels:
        yield sentinels


@pytest.fixture
def own_sentinels(tmp_path: Path) -> Iterator[RedisSentinels]:
    """Give those that a test may break."""
    with RedisSentinels(tmp_path) as sentinels:
        yield sentinels


def test_the_master_is_found_whichever_sentinel_answers(
    sentinels: RedisSentinels, ways: Ways
) -> None:
    async def test() -> None:
        master = sentinels.master
        master.call("FLUSHALL")
        for n, silent in enumerate(sentinels.sentinels):
            silent.kill()
            try:
                async with ways.to(sentinels.url) as run:
                    assert await run((ADD, KEY, n)) == [1]
            finally:
                silent.start()
        assert master.call("SCARD", KEY + b"set") == 3

    asyncio.run(test())


def test_a_master_that_no_sentinel_knows_is_refused_by_its_name(
    sentinels: RedisSentinels, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(sentinels.url.replace("/shop", "/shed")) as run:
            with pytest.raises(StoreRefused, match="knows of no master 'shed'; check the name"):
                await run((ADD, KEY, "a"))

    asyncio.run(test())


def test_a_sentinel_is_not_taken_for_a_server_nor_a_server_for_a_sentinel(
    sentinels: RedisSentinels, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(sentinels.sentinels[0].url) as run:
            with pytest.raises(StoreRefused, match=r"is a sentinel; use redis\+sentinel://"):
                await run((ADD, KEY, "a"))
        url = sentinels.servers[0].url.replace("redis://", "redis+sentinel://")
        async with ways.to(f"{url}/shop") as run:
            with pytest.raises(StoreRefused, match="must be sentinels"):
                await run((ADD, KEY, "a"))

    asyncio.run(test())


async def _more(acknowledged: list[str], number: int) -> None:
    before = len(acknowledged)
    deadline = time.monotonic() + PATIENCE
    while len(acknowledged) < before + number and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert len(acknowledged) >= before + number


@pytest.mark.long
def test_writes_that_a_replica_confirmed_survive_a_failover(
    own_sentinels: RedisSentinels, ways: Ways
) -> None:
    sentinels = own_sentinels
    former = sentinels.master
    acknowledged: list[str] = []

    async def write(run: object, over: asyncio.Event) -> None:
        n = 0
        while not over.is_set():
            n += 1
            try:
                await run((ADD, KEY, f"{n}"), timeout=30, again=True, replicas=1)  # type: ignore[operator]
            except WriteUncertain:
                continue  # No replica is left to confirm it.
            except StoreUnavailable:
                continue
            acknowledged.append(f"{n}")

    async def test() -> None:
        async with ways.to(sentinels.url) as run:
            over = asyncio.Event()
            writing = asyncio.create_task(write(run, over))
            await _more(acknowledged, 50)
            former.kill()
            await asyncio.to_thread(sentinels.wait_for_failover, former)
            former.start()  # It comes back as a replica, and confirms again.
            await _more(acknowledged, 50)
            over.set()
            await writing
        assert sentinels.master is not former
        kept = {each.decode() for each in sentinels.master.call("SMEMBERS", KEY + b"set")}
        assert set(acknowledged) <= kept

    asyncio.run(test())


@pytest.mark.long
def test_the_listener_follows_the_master(own_sentinels: RedisSentinels) -> None:
    sentinels = own_sentinels

    async def test() -> None:
        connections = RedisConnections(parse(sentinels.url))
        here = connections.here()
        channel = KEY + b"wake:" + here.sleeper.encode()
        async with asyncio.timeout(2 * PATIENCE):
            while not here.listener.listening:
                await here.listener.wait(here.listener.mark, 1)
            former = sentinels.master
            former.kill()
            await asyncio.to_thread(sentinels.wait_for_failover, former)
            heard = None
            while heard is None:
                mark = here.listener.mark
                await asyncio.to_thread(sentinels.master.call, "PUBLISH", channel, "hello")
                heard = await here.listener.wait(mark, 0.2)
            assert heard == b"hello"
        await connections.close()

    asyncio.run(test())
