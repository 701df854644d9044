"""How many connections there are, who waits for one, and what a fork or a loop has of them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.redis_server import RedisServer
from windlass.core.errors import StoreUnavailable
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.script import Script
from windlass.store.redis.connections.servers.urls import parse

KEY = b"{windlass}:"
COUNT = Script.of("count", "#!lua\nreturn redis.call('INCR', KEYS[1] .. 'n')")
HOLD = ("BLPOP", "nothing", 0)
"""Keeps a connection until it is pushed something."""
PATIENCE = 60.0


def clients(server: RedisServer) -> int:
    lines = server.call("CLIENT", "LIST").decode().splitlines()
    return sum("name=windlass" in line for line in lines)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_pool_has_no_more_connections_than_the_url_says(server: RedisServer) -> None:
    async def test() -> None:
        connections = RedisConnections(parse(f"{server.url}?max_connections=3"))
        pool = connections.here().pool
        counts = await asyncio.gather(*[pool.run((COUNT, KEY)) for _ in range(100)])
        assert sorted(count for (count,) in counts) == list(range(1, 101))
        assert (pool.open, pool.in_use, pool.most) == (3, 0, 3)
        assert clients(server) == 3
        await connections.close()

    asyncio.run(test())


def test_threads_share_no_more_connections_than_the_url_says(server: RedisServer) -> None:
    connections = RedisConnections(parse(f"{server.url}?max_connections=3"))
    with ThreadPoolExecutor(16) as threads:
        counts = list(threads.map(lambda _: connections.blocking.run((COUNT, KEY)), range(200)))
    assert sorted(count for (count,) in counts) == list(range(1, 201))
    assert connections.blocking.open <= 3
    assert clients(server) == connections.blocking.open
    connections.blocking.close()


def test_callers_that_wait_for_a_pool_connection_are_served_in_order(server: RedisServer) -> None:
    async def test() -> None:
        connections = RedisConnections(parse(f"{server.url}?max_connections=1"))
        pool = connections.here().pool
        holding = asyncio.create_task(pool.run(HOLD, timeout=PATIENCE))
        await until(lambda: pool.in_use == 1)
        done: list[int] = []

        async def one(n: int) -> None:
            await pool.run((COUNT, KEY), timeout=PATIENCE)
            done.append(n)

        waiting = [asyncio.create_task(one(n)) for n in range(20)]
        await asyncio.sleep(0.05)
        waiting[3].cancel()
        await asyncio.to_thread(server.call, "RPUSH", "nothing", 1)
        await asyncio.wait(waiting)
        await holding
        assert done == [n for n in range(20) if n != 3]
        assert (pool.open, pool.in_use) == (1, 0)
        await connections.close()

    asyncio.run(test())


def test_a_pool_whose_connections_are_all_in_use_says_what_to_do(server: RedisServer) -> None:
    url = f"{server.url}?max_connections=1"

    async def test() -> None:
        connections = RedisConnections(parse(url))
        pool, blocking = connections.here().pool, connections.blocking
        holding = [
            asyncio.create_task(pool.run(HOLD, timeout=PATIENCE)),
            asyncio.create_task(asyncio.to_thread(blocking.run, HOLD, timeout=PATIENCE)),
        ]
        await until(lambda: pool.in_use == blocking.in_use == 1)
        with pytest.raises(StoreUnavailable, match="all 1 connections are in use; raise max_conn"):
            await pool.run((COUNT, KEY), timeout=0.1)
        with pytest.raises(StoreUnavailable, match="all 1 connections are in use; raise max_conn"):
            await asyncio.to_thread(blocking.run, (COUNT, KEY), timeout=0.1)
        await asyncio.to_thread(server.call, "RPUSH", "nothing", 1, 2)
        await asyncio.gather(*holding)
        assert await pool.run((COUNT, KEY)) == [1]
        await connections.close()

    asyncio.run(test())


def test_a_cancelled_call_leaves_no_reply_for_the_next_call(server: RedisServer) -> None:
    async def test() -> None:
        connections = RedisConnections(parse(f"{server.url}?max_connections=1"))
        here = connections.here()
        for way in (here.hot, here.pool):
            await way.run(("PING",))
            for n in range(50):
                gone = asyncio.create_task(way.run(("ECHO", f"gone {n}")))
                for _ in range(n % 3):
                    await asyncio.sleep(0)
                gone.cancel()
                assert await way.run(("ECHO", f"here {n}")) == [b"here %d" % n]
        await connections.close()

    asyncio.run(test())


def test_many_calls_are_under_way_on_the_hot_connection(server: RedisServer) -> None:
    async def test() -> None:
        connections = RedisConnections(parse(server.url))
        hot = connections.here().hot
        counts = await asyncio.gather(*[hot.run((COUNT, KEY)) for _ in range(200)])
        assert sorted(count for (count,) in counts) == list(range(1, 201))
        assert clients(server) == 1
        await connections.close()

    asyncio.run(test())


def test_an_event_loop_that_ended_leaves_no_connection_behind(server: RedisServer) -> None:
    connections = RedisConnections(parse(server.url))

    async def use() -> None:
        await connections.here().run((COUNT, KEY))

    async def look() -> None:
        await use()
        await until(lambda: clients(server) == 1)

    for _ in range(3):
        asyncio.run(use())
    asyncio.run(look())
    asyncio.run(connections.close())
    gc.collect()  # An unclosed socket would be reported here, as an error.


def test_calls_after_a_close_share_a_connection_again(server: RedisServer) -> None:
    """Prevents that each enqueue of a program that has closed its app opens a connection."""
    connections = RedisConnections(parse(server.url))
    for expected in (1, 2):
        assert connections.blocking.run((COUNT, KEY)) == [2 * expected - 1]
        ids = [connections.blocking.run(("CLIENT", "ID")) for _ in range(2)]
        assert ids[0] == ids[1]
        assert connections.blocking.run((COUNT, KEY)) == [2 * expected]
        asyncio.run(connections.close())
        asyncio.run(until(lambda: clients(server) == 0))


def test_connections_that_nobody_closed_are_closed_when_their_owner_is_collected(
    server: RedisServer,
) -> None:
    async def use() -> None:
        connections = RedisConnections(parse(server.url))
        await connections.here().run((COUNT, KEY))
        del connections
        gc.collect()
        await until(lambda: clients(server) == 0)

    asyncio.run(use())
    gc.collect()


def test_event_loops_of_several_threads_have_connections_of_their_own(server: RedisServer) -> None:
    connections = RedisConnections(parse(server.url))
    counts: list[object] = []

    async def use() -> None:
        for _ in range(20):
            counts.extend(await connections.here().hot.run((COUNT, KEY)))
        await connections.by_loop.close_here()

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(counts) == list(range(1, 81))  # type: ignore[type-var]


FORK = """
import asyncio, os, sys
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.servers.urls import parse

connections = RedisConnections(parse(sys.argv[1]))
for n in range(20):
    assert connections.blocking.run(("ECHO", f"parent {n}")) == [b"parent %d" % n]
    child = os.fork()
    if not child:
        for m in range(20):
            assert connections.blocking.run(("ECHO", f"child {m}")) == [b"child %d" % m]

        async def use():
            assert await connections.here().run(("ECHO", "loop")) == [b"loop"]
            await connections.close()

        asyncio.run(use())
        os._exit(0)
    assert connections.blocking.run(("ECHO", f"both {n}")) == [b"both %d" % n]
    assert os.waitpid(child, 0)[1] == 0
    assert connections.heartbeat.run(("ECHO", f"after {n}")) == [b"after %d" % n]
print("alike")
"""


def test_a_fork_begins_with_no_connection_and_leaves_those_of_its_parent_alone(
    server: RedisServer,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORK, server.url], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.stdout.strip(), ended.stderr) == ("alike", "")
