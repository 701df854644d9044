"""What is run on a server is run once, and what is said about its fate is true."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.redis.connections.conftest import Run, Ways
from tests.support.network_proxy import Proxy
from tests.support.redis_server import RedisServer
from windlass.core.errors import (
    QueueFull,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    WriteUncertain,
)
from windlass.store.redis.connections.script import Command, Script

KEY = b"{windlass}:"
COUNT = Script.of("count", "#!lua flags=allow-oom\nreturn redis.call('INCR', KEYS[1] .. 'n')")
LOOK = Script.of("look", "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1] .. 'n')")
FILL = Script.of("fill", "#!lua\nreturn redis.call('SET', KEYS[1] .. ARGV[1], ARGV[2])")
PATIENCE = 60.0


def run(test: Callable[[], object]) -> None:
    """Run a test's coroutine."""
    asyncio.run(test())  # type: ignore[arg-type]


def test_replies_come_in_the_order_of_the_commands(server: RedisServer, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            replies = await run(("SET", "a", 1), ("GET", b"a"), (COUNT, KEY), ("GET", "none"))
            assert replies == [b"OK", b"1", 1, None]

    run(test)


def test_connections_have_a_name_and_use_the_database_of_the_url(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(f"{server.url}/3") as run:
            await run(("SET", "a", 1))
            listed = server.call("CLIENT", "LIST").decode().splitlines()
            assert [line for line in listed if "name=windlass" in line and " db=3 " in line]
        assert server.call("DBSIZE") == 0

    run(test)


def test_a_server_is_reached_by_its_socket(tmp_path: Path, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(f"unix://{tmp_path}/s.sock") as run:
            assert await run(("PING",)) == [b"PONG"]
        async with ways.to(f"unix://{tmp_path}/none.sock") as run:
            with pytest.raises(StoreRefused, match="check its path"):
                await run(("PING",))

    with RedisServer(tmp_path / "server", unixsocket=f"{tmp_path}/s.sock"):
        run(test)


def test_a_script_that_the_server_forgot_is_sent_again_in_the_middle_of_a_pipeline(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            for n in range(1, 4):
                server.call("SCRIPT", "FLUSH")
                replies = await run(("SET", "a", n), (COUNT, KEY), ("GET", "a"), (LOOK, KEY))
                assert replies == [b"OK", n, b"%d" % n, b"%d" % n]

    run(test)


def test_a_script_runs_once_while_others_make_the_server_forget_it(
    server: RedisServer, ways: Ways
) -> None:
    over = threading.Event()

    def flush() -> None:
        with server.client() as call:
            while not over.is_set():
                call("SCRIPT", "FLUSH")

    async def test() -> None:
        async with ways.to(server.url) as run:
            flushing = asyncio.create_task(asyncio.to_thread(flush))
            counts = [reply for _ in range(300) for reply in await run((COUNT, KEY))]
            over.set()
            await flushing
            assert counts == list(range(1, 301))

    run(test)


def test_a_connection_that_was_closed_while_idle_is_replaced_before_anything_is_sent(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            for n in range(1, 6):
                assert await run((COUNT, KEY)) == [n]
                server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                await asyncio.sleep(0.15)

    run(test)


def test_a_killed_server_loses_nothing_that_was_acknowledged(
    server: RedisServer, ways: Ways
) -> None:
    acknowledged: list[int] = []
    uncertain = 0

    async def test() -> None:
        nonlocal uncertain
        async with ways.to(f"{server.url}?timeout=5") as run:
            for _ in range(3):
                crash = asyncio.create_task(asyncio.to_thread(restart, server))
                while not crash.done():
                    try:
                        acknowledged.extend(await run((COUNT, KEY)))
                    except WriteUncertain:
                        uncertain += 1
                    except StoreUnavailable:
                        pass
                await crash
            before = len(acknowledged)
            acknowledged.extend(await run((COUNT, KEY)))
            assert len(acknowledged) == before + 1

    run(test)
    assert len(set(acknowledged)) == len(acknowledged)
    assert len(acknowledged) <= acknowledged[-1] <= len(acknowledged) + uncertain


def restart(server: RedisServer) -> None:
    time.sleep(0.2)
    server.kill()
    server.start()
    time.sleep(0.2)


def test_repeatable_requests_are_repeated_until_the_server_is_back(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            await run(("SET", "a", 1))
            server.pause()
            waiting = asyncio.create_task(run(("SET", "a", 2), ("GET", "a"), again=True))
            await asyncio.sleep(0.2)
            server.kill()
            server.start()
            assert await waiting == [b"OK", b"2"]

    run(test)


def test_a_server_that_does_not_answer_keeps_nobody_beyond_the_deadline(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            await run((COUNT, KEY))
            server.call("CLIENT", "PAUSE", 600_000, "ALL")
            with pytest.raises(WriteUncertain):
                await run((COUNT, KEY), timeout=0.3, again=True)
            with pytest.raises(StoreUnavailable) as late:
                await run((LOOK, KEY), timeout=0.3)
            assert not isinstance(late.value, WriteUncertain)
            server.kill()
            server.start()
            assert (await run((COUNT, KEY), timeout=PATIENCE))[0] >= 2

    run(test)


def test_a_server_that_cannot_be_reached_is_named_without_the_password(ways: Ways) -> None:
    async def test() -> None:
        async with ways.to("redis://ada:hushhush@127.0.0.1:1/2") as run:
            with pytest.raises(StoreUnavailable) as away:
                await run((COUNT, KEY))
            assert not isinstance(away.value, WriteUncertain)
            assert "redis://ada@127.0.0.1:1/2" in str(away.value)
            assert "refused" in str(away.value)
            assert "hushhush" not in str(away.value)

    run(test)


def test_a_network_that_swallows_everything_leaves_the_fate_of_a_write_open(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        with Proxy(server.url) as proxy:
            async with ways.to(proxy.url(server.url)) as run:
                await run((COUNT, KEY))
                proxy.black_hole()
                with pytest.raises(WriteUncertain):
                    await run((COUNT, KEY), timeout=0.3)
                # Now there is no connection, and none can be made: nothing is sent.
                with pytest.raises(StoreUnavailable) as away:
                    await run((COUNT, KEY), timeout=0.3)
                assert not isinstance(away.value, WriteUncertain)
                proxy.passing()
                assert await run((COUNT, KEY), timeout=PATIENCE) == [2]

    run(test)


def test_a_write_whose_connection_is_cut_before_the_answer_is_uncertain(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        with Proxy(server.url) as proxy:
            async with ways.to(proxy.url(server.url)) as run:
                await run((COUNT, KEY))
                proxy.hold(b"EVALSHA")
                waiting = asyncio.create_task(run((COUNT, KEY), timeout=PATIENCE))
                await asyncio.to_thread(proxy.is_holding.wait, PATIENCE)
                proxy.reset()
                with pytest.raises(WriteUncertain):
                    await waiting
                assert (await run((LOOK, KEY)))[0] == b"1"

    run(test)


def test_connections_that_are_reset_as_they_are_made_are_made_again(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        with Proxy(server.url) as proxy:
            proxy.drop(3)
            async with ways.to(proxy.url(server.url)) as run:
                assert await run((COUNT, KEY), timeout=PATIENCE) == [1]

    run(test)


def test_a_full_server_refuses_what_adds_and_goes_on_with_all_else(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            await run((FILL, KEY, "big", "x" * 100_000))
            server.call("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(QueueFull, match="maxmemory; raise it"):
                await run((FILL, KEY, "more", "x"))
            assert await run((COUNT, KEY)) == [1]

    run(test)


async def _refusal(run: Run, command: Command, said: str) -> StoreUnavailable:
    """Return the error that says so; a server that is slow may not get as far as to say it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            await run(command, timeout=1)
        except StoreUnavailable as error:
            if said in str(error):
                return error
    raise AssertionError(f"never said: {said}")


def test_a_replica_is_left_for_the_time_in_which_it_becomes_the_master(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            await run((COUNT, KEY))
            server.call("REPLICAOF", "127.0.0.1", 1)
            assert "replica" in str(await _refusal(run, (COUNT, KEY), "replica"))
            waiting = asyncio.create_task(run((COUNT, KEY), timeout=PATIENCE))
            await asyncio.sleep(0.1)
            server.call("REPLICAOF", "NO", "ONE")
            assert (await waiting)[0] >= 2

    run(test)


def test_a_server_that_loads_its_data_is_waited_for(tmp_path: Path, ways: Ways) -> None:
    server = RedisServer(tmp_path, key_load_delay=400, loading_process_events_interval_bytes=1024)

    async def test() -> None:
        async with ways.to(server.url) as run:
            await run(*[("SET", f"a{n}", n) for n in range(2_000)])
            server.call("SAVE")
            server.kill()
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            await asyncio.to_thread(_accepts, server)
            assert await run(("GET", "a1"), timeout=PATIENCE) == [b"1"]
            await starting

    with server:
        run(test)


def _accepts(server: RedisServer) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            server.call("PING")
        except OSError:
            time.sleep(0.01)
        except Exception:
            return
        else:
            return


def test_a_script_of_others_that_takes_too_long_is_waited_for(tmp_path: Path, ways: Ways) -> None:
    server = RedisServer(tmp_path, busy_reply_threshold=20)
    spin = "#!lua flags=no-writes\nwhile true do redis.call('TIME') end"

    async def test() -> None:
        async with ways.to(server.url) as run:
            await run((COUNT, KEY))
            spinning = asyncio.create_task(
                asyncio.to_thread(lambda: _quietly(server, "EVAL", spin, 0))
            )
            await asyncio.to_thread(_until_busy, server)
            busy = await _refusal(run, (LOOK, KEY), "script is running")
            assert isinstance(busy, StoreBusy)
            waiting = asyncio.create_task(run((COUNT, KEY), timeout=PATIENCE))
            await asyncio.sleep(0.1)
            server.call("SCRIPT", "KILL")
            assert await waiting == [2]
            await spinning

    with server:
        run(test)


def _quietly(server: RedisServer, *command: str | int) -> None:
    try:
        server.call(*command)
    except Exception as error:
        assert "killed" in str(error)  # noqa: PT017


def _until_busy(server: RedisServer) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            server.call("PING")
        except Exception as error:
            if str(error).startswith("BUSY"):
                return
        time.sleep(0.01)


def test_a_command_that_is_refused_for_good_is_not_tried_again(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(server.url) as run:
            with pytest.raises(StoreError, match="wrong kind of value") as refused:
                await run(("LPUSH", "a", 1), ("INCR", "a"), ("LPUSH", "a", 2))
            assert not isinstance(refused.value, StoreUnavailable)
            assert await run(("LLEN", "a")) == [2]

    run(test)


def test_replicas_confirm_what_asks_for_it(tmp_path: Path, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(master.url) as run:
            # A fifth of the time is left for the answer, which a busy machine may need more of.
            said, count = "", 0
            for timeout in (3, 15, 60):
                count += 1
                with pytest.raises(WriteUncertain) as uncertain:
                    await run((COUNT, KEY), timeout=timeout, replicas=1)
                said = str(uncertain.value)
                if "no answer in time" not in said:
                    break
            assert "0 of 1 replicas confirmed" in said
            with replica:
                assert await run((COUNT, KEY), timeout=PATIENCE, replicas=1) == [count + 1]
                master.call("SCRIPT", "FLUSH")
                assert await run((COUNT, KEY), timeout=PATIENCE, replicas=1) == [count + 2]
                assert replica.call("GET", KEY + b"n") == b"%d" % (count + 2)

    master = RedisServer(tmp_path / "master", repl_diskless_sync_delay=0)
    with master:
        replica = RedisServer(tmp_path / "replica", replicaof=f"127.0.0.1 {master.port}")
        run(test)
