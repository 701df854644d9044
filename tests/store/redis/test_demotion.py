"""A server that was demoted brings no jobs, and is left as soon as it says that it is a replica."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.store.redis.test_standing_asks import ServersClock, ready, state_of
from tests.support.app_on_store import until
from tests.support.network_proxy import Proxy
from tests.support.redis_server import PATIENCE, RedisServer, binary
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerPulse
from windlass.store.redis import RedisStore
from windlass.store.redis.connections import listener as listener_module
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.servers.urls import parse
from windlass.testing.conformance import Bench

REDIS = shutil.which("redis-server")
VALKEY = pytest.mark.parametrize("pair", [binary()], ids=["valkey"], indirect=True)


class Pair(NamedTuple):
    """A master and its replica."""

    master: RedisServer
    replica: RedisServer

    def switch(self) -> None:
        """Let them change their roles; the connections of clients survive it."""
        self.master.call("FAILOVER")
        wait_until(lambda: role(self.replica) == b"master" and role(self.master) == b"slave")
        wait_until(lambda: b"master_link_status:up" in self.master.call("INFO", "replication"))


def role(server: RedisServer) -> bytes:
    found: bytes = server.call("ROLE")[0]
    return found


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(params=[binary(), *([Path(REDIS)] if REDIS else [])], ids=lambda path: path.name)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Give a master and a replica that has all of its data."""
    with (
        RedisServer(tmp_path / "a", server=request.param, repl_diskless_sync_delay=0) as master,
        RedisServer(tmp_path / "b", server=request.param, repl_diskless_sync_delay=0) as replica,
    ):
        replica.call("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: b"master_link_status:up" in replica.call("INFO", "replication"))
        yield Pair(master, replica)


def test_a_demoted_server_does_not_bring_jobs_that_the_new_master_did_not_give(pair: Pair) -> None:
    """Prevents: a job runs that is pending in the store, since PUBLISH reaches replicas, too."""

    async def main() -> None:
        store, producer = RedisStore(pair.master.url), RedisStore(pair.replica.url)
        await store.open()
        asker = await ready(store)
        await asker.asleep(asker.ask())
        here = store._here().connections
        await asyncio.to_thread(pair.switch)
        await producer.open()
        job = await Bench(producer, ServersClock(pair.replica)).enqueue()
        assert here.listener.listening
        with pair.replica.client() as run:
            run("SET", "barrier", 1)
            assert run("WAIT", 1, int(PATIENCE * 1000)) == 1
        # What the demoted server had to say about the job, it has said before this.
        mark = here.listener.mark
        pair.master.call("PUBLISH", f"{{windlass}}:wake:{here.sleeper}", b"")
        await until(lambda: here.listener.mark > mark)
        assert await state_of(Bench(producer, ServersClock(pair.replica)), job) is State.PENDING
        assert not asker.jobs
        assert asker.waiting is not None
        asker.waiting.cancel()
        here.close_now()
        await producer.close()

    asyncio.run(main())


def test_the_listener_leaves_a_server_that_became_a_replica(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a worker that is never woken again, since its probes are answered."""
    monkeypatch.setattr(listener_module, "_PROBE_INTERVAL_SECONDS", 0.05)

    async def main() -> None:
        store = RedisStore(pair.master.url)
        await ready(store)
        listener = store._here().connections.listener
        await asyncio.to_thread(pair.switch)
        await until(lambda: listener.is_deaf)
        assert "replica" in listener.trouble
        pair.replica.call("FAILOVER")
        await until(lambda: listener.listening)
        store._here().connections.close_now()

    asyncio.run(main())


@VALKEY
@pytest.mark.parametrize("way", ["hot", "pool", "blocking", "heartbeat"])
def test_a_connection_to_a_server_that_was_demoted_is_given_up(pair: Pair, way: str) -> None:
    """Prevents: a worker that gets READONLY for as long as its connection lives.

    The address is that of the master, as it is behind a proxy or a name that follows it.
    """
    write = ("SET", "{windlass}:key", "1")

    async def main() -> None:
        with Proxy(pair.master.url) as proxy:
            connections = RedisConnections(parse(proxy.url(pair.master.url)))

            async def run() -> object:
                if way in ("hot", "pool"):
                    return await getattr(connections.here(), way).run(write, timeout=PATIENCE)
                blocking = getattr(connections, way)
                return await asyncio.to_thread(blocking.run, write, timeout=PATIENCE)

            assert await run() == [b"OK"]
            await asyncio.to_thread(pair.switch)
            proxy.lead_to(pair.replica.url)
            assert await run() == [b"OK"]
            assert pair.replica.call("GET", "{windlass}:key") == b"1"
            await connections.close()

    asyncio.run(main())


@VALKEY
def test_one_connection_that_meets_a_replica_ends_all_of_them(pair: Pair) -> None:
    async def main() -> None:
        with Proxy(pair.master.url) as proxy:
            store = RedisStore(proxy.url(pair.master.url))
            await store.open()
            asker = await ready(store)
            await asker.asleep(asker.ask(), timeout=timedelta(milliseconds=20))
            await asyncio.to_thread(pair.switch)
            proxy.lead_to(pair.replica.url)
            await asyncio.to_thread(
                store.heartbeat, "w", WorkerPulse(), timedelta(seconds=PATIENCE)
            )
            await asker.woken()
            former = store._here().connections.listener._connection
            await store.wait(0, timedelta(0))
            await until(lambda: store._here().connections.listener._connection is not former)
            await until(lambda: store.listening)
            await asker.asleep(asker.ask(token=9))
            producer = RedisStore(pair.replica.url)
            job = await Bench(producer, ServersClock(pair.replica)).enqueue()
            await until(lambda: asker.jobs)
            assert [each.id for each in asker.jobs] == [job]
            await store.close()
            await producer.close()

    asyncio.run(main())
