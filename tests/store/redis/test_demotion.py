"""A server that was demoted brings no jobs, and is left as soon as it says that it is a replica."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.store.redis.test_standing_asks import ServersClock, ready, state_of
from tests.support.app_on_store import until
from tests.support.redis_server import PATIENCE, RedisServer, binary
from windlass.core.jobs.states import State
from windlass.store.redis import RedisStore
from windlass.store.redis.connections import listener as listener_module
from windlass.testing.conformance import Bench

REDIS = shutil.which("redis-server")


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
