"""The listener hears what is published, and says so when it cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.network_proxy import Proxy
from tests.support.redis_server import RedisServer
from windlass.store.redis.connections import listener as listener_module
from windlass.store.redis.connections.listener import Listener
from windlass.store.redis.connections.per_loop import LoopConnections
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.servers.urls import parse

PATIENCE = 60.0


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[LoopConnections]:
    connections = RedisConnections(parse(url))
    try:
        async with asyncio.timeout(PATIENCE):
            yield connections.here()
    finally:
        await connections.close()


async def until(listener: Listener, *, listening: bool) -> None:
    while listener.listening is not listening:
        await listener.wait(listener.mark, 1)


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def publish(server: RedisServer, here: LoopConnections, word: str) -> int:
    channel = f"{{windlass}}:wake:{here.sleeper}"
    receivers: int = await asyncio.to_thread(server.call, "PUBLISH", channel, word)
    return receivers


def test_a_word_that_is_published_ends_the_wait(server: RedisServer) -> None:
    async def test() -> None:
        async with connected(server.url) as here:
            await until(here.listener, listening=True)
            mark = here.listener.mark
            waiting = asyncio.create_task(here.listener.wait(mark, PATIENCE))
            assert await publish(server, here, "mail") == 1
            assert await waiting == b"mail"

    asyncio.run(test())


def test_a_word_between_the_mark_and_the_wait_is_not_missed(server: RedisServer) -> None:
    async def test() -> None:
        async with connected(server.url) as here:
            await until(here.listener, listening=True)
            mark = here.listener.mark
            await publish(server, here, "mail")
            await _until(lambda: here.listener.mark > mark)
            assert await here.listener.wait(mark, PATIENCE) == b"mail"
            assert await here.listener.wait(here.listener.mark, 0.05) is None

    asyncio.run(test())


def test_a_lost_connection_ends_the_wait_and_is_made_again(server: RedisServer) -> None:
    async def test() -> None:
        async with connected(server.url) as here:
            await until(here.listener, listening=True)
            mark = here.listener.mark
            waiting = asyncio.create_task(here.listener.wait(mark, PATIENCE))
            await asyncio.to_thread(server.call, "CLIENT", "KILL", "TYPE", "pubsub")
            assert await waiting is None
            await until(here.listener, listening=True)
            mark = here.listener.mark
            await publish(server, here, "mail")
            assert await here.listener.wait(mark, PATIENCE) == b"mail"

    asyncio.run(test())


def test_a_silent_network_is_noticed_by_a_probe(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_PROBE_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(listener_module, "_PROBE_TIMEOUT_SECONDS", 0.5)

    async def test() -> None:
        with Proxy(server.url) as proxy:
            async with connected(proxy.url(server.url)) as here:
                await until(here.listener, listening=True)
                proxy.black_hole()
                await until(here.listener, listening=False)
                await _until(lambda: here.listener.is_deaf)
                assert here.listener.trouble
                proxy.passing()
                await until(here.listener, listening=True)

    asyncio.run(test())


def test_probes_go_on_while_words_arrive(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_PROBE_INTERVAL_SECONDS", 0.01)

    async def test() -> None:
        async with connected(server.url) as here:
            await until(here.listener, listening=True)
            for n in range(50):
                mark = here.listener.mark
                await publish(server, here, f"{n}")
                assert await here.listener.wait(mark, PATIENCE) == b"%d" % n

    asyncio.run(test())


def test_a_missing_right_to_subscribe_is_reported(server: RedisServer) -> None:
    server.call("ACL", "SETUSER", "shop", "on", ">hush", "~*", "resetchannels", "+@all")

    async def test() -> None:
        async with connected(server.url.replace("redis://", "redis://shop:hush@")) as here:
            here.listener.start()
            await _until(lambda: here.listener.is_deaf)
            assert "NOPERM" in here.listener.trouble

    asyncio.run(test())
