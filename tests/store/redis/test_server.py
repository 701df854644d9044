"""What a store makes of its server: its memory, its settings, its rights, and who empties it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.redis_fixtures import ClockedRedis, clocked_redis, documented_rights
from tests.support.redis_server import RedisServer
from windlass.core.errors import ConfigError, QueueFull, SchemaMismatch
from windlass.core.jobs.queries import Retention
from windlass.core.workers import WorkerPulse
from windlass.store.redis import RedisStore
from windlass.testing.conformance import Bench, laws_for
from windlass.testing.conformance.bench import MANY, SECOND, leaving

PATIENCE = timedelta(seconds=30)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", maxmemory="100mb") as server:
        yield server


@pytest.fixture
def clocked(server: RedisServer) -> Iterator[ClockedRedis]:
    with clocked_redis(server) as clocked:
        yield clocked


def test_a_full_server_refuses_new_jobs_and_ends_those_it_has(clocked: ClockedRedis) -> None:
    """Prevents: settles and heartbeats are refused, and nothing ever becomes free."""

    async def main() -> None:
        async with clocked.opened() as store:
            bench = Bench(store, clocked)
            worker = await bench.worker()
            await store.enqueue([bench.new() for _ in range(3)])
            clocked.run("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(QueueFull, match="maxmemory"):
                await bench.add()
            with pytest.raises(QueueFull):
                await asyncio.to_thread(store.enqueue_blocking, [bench.new()], PATIENCE)
            with pytest.raises(QueueFull):
                await store.enqueue([bench.new(due=SECOND) for _ in range(300)])
            claimed = await bench.claim(worker)
            assert await bench.heartbeat(worker)
            results = [b"1", b"2" * 1_000, b"3" * 100_000]
            moves = [leaving(job, result=r) for job, r in zip(claimed, results, strict=True)]
            assert await store.settle(moves) == [True] * 3
            assert [(await bench.job(job.id)).result for job in claimed] == results
            moment = timedelta(microseconds=-1)
            assert await store.prune(Retention(finished=moment), MANY) == 3

    asyncio.run(main())
    clocked.run("CONFIG", "SET", "maxmemory", 0)


def test_an_emptied_server_is_a_finding_and_can_be_used_again(clocked: ClockedRedis) -> None:
    async def main() -> None:
        async with clocked.opened() as store:
            await store.open()
            bench = Bench(store, clocked)
            worker = await bench.worker()
            await bench.enqueue()
            clocked.run("FLUSHALL")
            assert not await asyncio.to_thread(store.heartbeat, worker, WorkerPulse(), PATIENCE)
            for _ in range(2):
                assert "emptied" in [each.name for each in await store.findings()]
            assert (await store.schema()).serves
            assert await bench.leave(await bench.start())

    asyncio.run(main())


def test_a_server_that_would_delete_jobs_is_refused(server: RedisServer) -> None:
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

    async def main() -> None:
        store = RedisStore(server.url)
        with pytest.raises(ConfigError, match="must be noeviction, got allkeys-lru"):
            await store.open()
        server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        await store.open()
        problems = " ".join(each.problem for each in await store.findings())
        assert "maxmemory-policy is volatile-lru" in problems
        assert "append-only file is off" in problems
        server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        server.call("CONFIG", "SET", "appendonly", "yes")
        assert await store.findings() == []
        server.call("CONFIG", "SET", "maxmemory", 0)
        (finding,) = await store.findings()
        assert "maxmemory is not set" in finding.problem
        server.call("CONFIG", "SET", "maxmemory", 1)
        (finding,) = await store.findings()
        assert "memory is used" in finding.problem
        await store.close()

    asyncio.run(main())


def test_a_missing_right_to_read_the_servers_settings_is_reported(server: RedisServer) -> None:
    server.call(
        "ACL", "SETUSER", "shop", "on", ">password", "allkeys", "allchannels", "+@all", "-info"
    )

    async def main() -> None:
        store = RedisStore(server.url.replace("redis://", "redis://shop:password@"))
        await store.open()
        (finding,) = await store.findings()
        assert "grant +info" in finding.remedy
        await store.close()

    asyncio.run(main())


def test_a_layout_of_a_newer_release_is_refused(server: RedisServer) -> None:
    async def main() -> None:
        store = RedisStore(server.url)
        assert (await store.schema()).found is None
        assert [step.name for step in await store.migrations()] == ["layout"]
        assert await store.migrate() == ["0001_layout"]
        assert await store.migrate() == []
        assert await store.migrations() == []
        server.call("SET", "{windlass}:schema", "2")
        with pytest.raises(SchemaMismatch, match="layout 2"):
            await store.open()
        server.call("SET", "{windlass}:schema", "2 1")
        await store.open()
        await store.close()

    asyncio.run(main())


def test_the_documented_rights_are_enough_for_every_law(server: RedisServer) -> None:
    with clocked_redis(server) as clocked:
        server.call(*documented_rights("windlass", clocked.prefix))
        clocked.url = clocked.url.replace("redis://", "redis://windlass:password@")

        @asynccontextmanager
        async def open_bench() -> AsyncIterator[Bench]:
            clocked.empty()
            async with clocked.opened() as store:
                await store.open()
                await store.findings()
                yield Bench(store, clocked, sibling=clocked.opened)

        for law in laws_for(RedisStore.capabilities):
            asyncio.run(law.check(open_bench))
